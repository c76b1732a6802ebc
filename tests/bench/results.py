"""Results on disk: one JSON file per benchmark, from which tables, documents and pictures are generated."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench.model import Figure, Result
from tests.bench.setup import machine

SOURCES: Final = Path(__file__).parents[2]


def result(
    benchmark: str, figures: Sequence[Figure], raw: Sequence[Mapping[str, Any]], *, extra: Mapping[str, Any] | None = None
) -> Result:
    """Create a result for this machine and moment. Times are rounded to a tenth of a millisecond."""
    return Result(
        benchmark=benchmark,
        taken=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        commit=commit(SOURCES),
        machine=machine(),
        figures=tuple(figures),
        raw=[{key: _short(value) for key, value in row.items()} for row in raw],
        extra=extra or {},
    )


def commit(checkout: Path) -> str:
    """Return the commit of the sources, with a note if they were changed since. An archive without history has none."""
    git = ("git", "-C", str(checkout))
    head = subprocess.run([*git, "log", "-1", "--format=%h"], capture_output=True, text=True, check=False)
    if head.returncode:
        return "no commit"
    changed = subprocess.run([*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True, check=True).stdout
    return head.stdout.strip() + (" with changes" if changed else "")


def save(found: Result, directory: Path) -> Path:
    """Write a result, replacing the previous one."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{found.benchmark}.json"
    path.write_text(json.dumps(found.as_map(), indent=1) + "\n", encoding="utf-8")
    return path


def load(directory: Path, names: Sequence[str]) -> list[Result]:
    """Read the existing results, in this order."""
    paths = [directory / f"{name}.json" for name in names]
    return [Result.from_map(json.loads(path.read_text(encoding="utf-8"))) for path in paths if path.exists()]


def _short(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value
