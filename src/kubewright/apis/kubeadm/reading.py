"""One reading of a set of documents: decodes each kind once, and gathers what was found in all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kubewright.apis.kubeadm.documents import META, Selection
from kubewright.apis.walking import Findings, Place
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldPath
from kubewright.base.records import dataclass, field

if TYPE_CHECKING:
    from kubewright.base.yaml import Document

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The documents by kind and what was found in each. `strict`: unknown and repeated fields are errors, else warnings."""

    selection: Selection
    strict: bool = True
    findings: dict[str, Findings] = field(default_factory=dict)

    def place(self, kind: str) -> Place:
        """Return the root of a kind's document; its fields may also come from flags and defaults alone."""
        if kind not in self.findings:
            document = self.selection.get(kind)
            self.findings[kind] = Findings(locate=_locator(document), hint=_hinter(kind)) if document else Findings()
        return self.findings[kind].root

    def decode(self, kind: str, decoder: Callable[[Any, Place], T]) -> T | None:
        """Decode the document of a kind, if there is one."""
        document, place = self.selection.get(kind), self.place(kind)
        if document is None:
            return None
        for path in document.duplicates:
            Place(FieldPath(path), place.findings).repeated()
        value = document.value if isinstance(document.value, Mapping) else {}
        return decoder({name: element for name, element in value.items() if name not in META}, place)

    def finish(self) -> list[str]:
        """Return the warnings. Raises ValidationError with everything that is wrong, in the order of the file."""
        found = sorted(self._errors(), key=lambda pair: pair[0])
        if found:
            source = next((document.source for document in self.selection.by_kind.values()), "")
            raise ValidationError(
                f"{source or 'the configuration'} is not valid",
                [error for _, error in found],
                is_cut=any(one.is_cut for one in self.findings.values()),
                remedy="correct the fields named above",
            )
        surplus = (str(error) for one in self.findings.values() for error in one.surplus)
        return [*self.selection.notes, *surplus, *(text for one in self.findings.values() for text in one.warnings)]

    def _errors(self) -> Iterator[tuple[tuple[float, int], FieldError]]:
        for kind, found in self.findings.items():
            document = self.selection.get(kind)
            for error in (*found.errors, *(found.surplus if self.strict else ())):
                yield document.position_of(error.path.text) if document else (math.inf, 0), error


def _locator(document: Document) -> Callable[[FieldPath, object], str]:
    known: dict[int, Mapping[str, int]] = {}

    def entries(field: list[object]) -> Mapping[str, int]:
        """Return where each text of a list stands first; lists are asked again and again, and may be long."""
        if id(field) not in known:
            # Names are put into lower case before they are judged.
            places = {entry.lower(): index for index, entry in reversed([*enumerate(field)]) if isinstance(entry, str)}
            known[id(field)] = places
        return known[id(field)]

    return lambda path, value: document.where(path.text + _inside(document.at(path.text), value, entries))


def _inside(field: object, value: object, entries: Callable[[list[object]], Mapping[str, int]]) -> str:
    """Return the step into a list or map that leads to the entry which an error is about; '' where that cannot be told."""
    if not isinstance(value, str):
        return ""
    if isinstance(field, Mapping):
        return f"[{value}]" if value in field else ""
    if not isinstance(field, list):
        return ""
    if value.startswith("index "):
        return f"[{value.removeprefix('index ')}]"
    found = entries(field).get(value.lower())
    return "" if found is None else f"[{found}]"


def _hinter(kind: str) -> Callable[[FieldPath, str], str]:
    def hint(path: FieldPath, meant: str) -> str:
        from kubewright.apis.kubeadm import hints  # knows every field of every kind, and is for wrong ones only

        return hints.unknown_field(kind, path.text, meant)

    return hint
