"""A soak of several parts, each a row of a page: run, reported, written. The rows of parts that were not run stay."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

Part = Callable[[], tuple[str, str]]
"""Runs the part; returns how much was done, and the result. Raises if anything was wrong."""

COLUMNS = "\n| what | how much | outcome | seconds | taken |\n|---|---|---|---|---|\n"


@dataclass(frozen=True, kw_only=True)
class Soak:
    """`head` is the text above the page's table."""

    name: str
    page: Path
    head: str
    parts: Mapping[str, Part]

    def main(self, arguments: Sequence[str]) -> int:
        """Run the requested parts, and write a row for each. Returns 1 if one failed; the others run nevertheless."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that clusters are removed
        parser = argparse.ArgumentParser(prog=f"python -m {self.name}")
        parser.add_argument("--only", action="append", choices=tuple(self.parts), help="only this part; may be repeated")
        wanted = parser.parse_args(arguments).only or list(self.parts)
        failed = False
        for name in wanted:
            began = time.monotonic()
            try:
                how_much, outcome = self.parts[name]()
            except Exception as error:  # the others continue
                how_much, outcome, failed = (
                    "",
                    f"**failed**: {type(error).__name__}: {error}".replace("\n", " ").replace("|", "/")[:300],
                    True,
                )
            rows = self._known()
            rows[name] = f"| {name} | {how_much} | {outcome} | {time.monotonic() - began:.0f} | {datetime.now(UTC):%Y-%m-%d} |"
            sys.stdout.write(rows[name] + "\n")
            sys.stdout.flush()
            self.page.write_text(self._above + "".join(f"{rows[one]}\n" for one in self.parts if one in rows), encoding="utf-8")
        return 1 if failed else 0

    @property
    def _above(self) -> str:
        return self.head + COLUMNS

    def _known(self) -> dict[str, str]:
        if not self.page.exists():
            return {}
        lines = self.page.read_text(encoding="utf-8").removeprefix(self._above).splitlines()
        return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}
