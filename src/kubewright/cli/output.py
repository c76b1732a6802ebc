"""How results are printed: JSON, YAML, and tables for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence


def write_result(result: object, *, form: str) -> None:
    """Write a result to stdout as `json` (four blanks, as kubeadm indents) or `yaml`."""
    if form == "yaml":
        from kubewright.base import yaml

        sys.stdout.write(yaml.dump(result))
    else:
        import json

        sys.stdout.write(json.dumps(result, indent=4, default=str) + "\n")


def table(rows: Sequence[Mapping[str, object]], *, columns: Sequence[tuple[str, str]]) -> str:
    """Lay out rows under headings, three blanks between columns. `columns` are pairs of key and heading."""
    cells = [[heading for _, heading in columns], *([_shown(row.get(key)) for key, _ in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return "".join("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in cells)


def _shown(value: object) -> str:
    if value is None or value == "":
        return "-"
    return str(value)
