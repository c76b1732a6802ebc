"""Print the size of the package: modules, lines, and the longest modules. Generated modules are left out."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "kubewright"


def main() -> int:
    """Print the figures as a table."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py")}
    longest = max(lines, key=lambda path: lines[path])
    figures = (
        ("modules", f"{len(lines)}"),
        ("lines", f"{sum(lines.values())}"),
        ("median of lines", f"{statistics.median(lines.values()):.0f}"),
        ("longest module", f"{lines[longest]} ({longest.relative_to(SOURCE)})"),
    )
    sys.stdout.write("".join(f"{name:<16}  {value}\n" for name, value in figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
