"""How results are printed: JSON, YAML, and tables for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from kubewright.base.quoting import each_text, printable
from kubewright.cli.colours import Paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kubewright.cli.parser import Parsed
    from kubewright.cli.printers.choosing import Printer
    from kubewright.workflow.plan import Plan


OUTPUT_VERSION = "output.kubeadm.k8s.io/v1alpha3"
"""The API version of kubeadm's output kinds."""


def write_result(result: object, *, form: str) -> None:
    """Write a result to stdout as `json` (four blanks, as kubeadm indents) or `yaml`."""
    import json

    shown = each_text(result, printable)
    if form == "yaml":
        from kubewright.base import yaml

        sys.stdout.write(yaml.dump(json.loads(json.dumps(shown, default=_text))))
    else:
        sys.stdout.write(json.dumps(shown, indent=4, default=_text) + "\n")


def _text(value: object) -> str:
    return printable(str(value))


def write_plan(plan: Plan, *, form: str) -> None:
    """Write a plan to stdout: as data, or as text."""
    if form != "text":
        write_result(plan.as_list(), form=form)
    else:
        sys.stdout.write(plan.text())


def write_documents(documents: Sequence[Mapping[str, Any]], *, form: str) -> None:
    """Write documents to stdout, as `documents_text` has them."""
    sys.stdout.write(documents_text(documents, form=form))


def documents_text(documents: Sequence[Mapping[str, Any]], *, form: str) -> str:
    """Return documents as YAML with separators between them, or as JSON, one after the other."""
    if form == "json":
        import json

        return "".join(json.dumps(document, indent=4, default=str) + "\n" for document in documents)
    from kubewright.base import yaml

    return yaml.dump_all(documents)


def printer(parsed: Parsed) -> Printer | None:
    """Return the printer that the flags of `printer_flags` ask for; None for text, which is the command's own. Raises UsageError."""
    from kubewright.cli.printers import choosing

    return choosing.choose(parsed.text("output"), allow_missing=parsed.flag("allow-missing-template-keys"))


def table(rows: Sequence[Mapping[str, object]], *, columns: Sequence[tuple[str, str]], paint: Paint | None = None) -> str:
    """Lay out rows under headings, three blanks between columns. `columns` are pairs of key and heading; `paint` decorates cells."""
    keys = [key for key, _ in columns]
    cells = [[heading for _, heading in columns], *([_shown(row.get(key)) for key in keys] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return "".join(_line(line, widths, ["heading"] * len(keys) if line is cells[0] else keys, paint) for line in cells)


def _line(cells: Sequence[str], widths: Sequence[int], places: Sequence[str], paint: Paint | None) -> str:
    """Put cells side by side. The padding of a cell is not decorated, and the last cell has none."""
    padding = [" " * (width - len(cell)) for cell, width in zip(cells, widths, strict=True)]
    painted = [paint(place, cell) for place, cell in zip(places, cells, strict=True)] if paint else cells
    return "   ".join(cell + blanks for cell, blanks in zip(painted, padding, strict=True)).rstrip() + "\n"


def _shown(value: object) -> str:
    if value is None or value == "":
        return "-"
    return str(value)
