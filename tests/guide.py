"""The Python examples of a guide, each with the output that the page promises."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GUIDE = Path(__file__).parents[1] / "docs" / "guide"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
NEEDS_CLUSTER = "<!-- From here on the examples need"


@dataclass(frozen=True)
class Example:
    """One example: its code, its output, and whether it needs a cluster."""

    code: str
    output: str
    needs_cluster: bool
    place: str


def examples(page: str) -> Iterator[Example]:
    """Read the examples of a page, in order."""
    text = (GUIDE / page).read_text()
    marker = text.find(NEEDS_CLUSTER)
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Example(found[1], found[2] or "", needs_cluster=0 <= marker < found.start(), place=f"{page}:{line}")


def run(example: Example, names: dict[str, object]) -> str:
    """Run an example with the variables that the previous ones left, and return its output."""
    out = io.StringIO()
    padding = "\n" * int(example.place.partition(":")[2])  # so that a traceback shows the page's line numbers
    with contextlib.redirect_stdout(out):
        exec(compile(padding + example.code, example.place.partition(":")[0], "exec"), names)
    return out.getvalue()
