"""The documents of a configuration file: which kinds it may contain, which of them a command reads, and the findings in them.

Mirrors kubeadm v1.36: util/config/common.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kubewright.apis.findings import MOST_SHOWN, Findings, Place, closest, shortened
from kubewright.apis.kubeadm import removed
from kubewright.apis.kubeadm.removed import KINDS as GONE
from kubewright.apis.kubeadm.removed import LAST_MIGRATOR
from kubewright.base.errors import DocumentError, ValidationError
from kubewright.base.fields import FieldError, FieldPath
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field

if TYPE_CHECKING:
    from kubewright.base.yaml import Document


GROUP: Final = "kubeadm.k8s.io"
API_VERSION: Final = f"{GROUP}/v1beta4"
META: Final = ("apiVersion", "kind")

INIT: Final = "InitConfiguration"
CLUSTER: Final = "ClusterConfiguration"
JOIN: Final = "JoinConfiguration"
RESET: Final = "ResetConfiguration"
UPGRADE: Final = "UpgradeConfiguration"
KUBELET: Final = "KubeletConfiguration"
KUBE_PROXY: Final = "KubeProxyConfiguration"

KINDS: Final = (INIT, CLUSTER, JOIN, RESET, UPGRADE)
OF_INIT: Final = (INIT, CLUSTER, KUBELET, KUBE_PROXY)
"""The kinds that `init` reads."""

CURRENT: Final = "v1beta4"
DEPRECATED: Final = "v1beta3"
READABLE: Final = {CURRENT: KINDS, **dict.fromkeys((DEPRECATED, *removed.STILL_READ), (INIT, CLUSTER, JOIN))}
COMPONENT_GROUPS: Final = {
    "kubelet.config.k8s.io": ("v1beta1", KUBELET),
    "kubeproxy.config.k8s.io": ("v1alpha1", KUBE_PROXY),
}

_REMEDY: Final = f"set a supported apiVersion and kind in each document: {API_VERSION} with {', '.join(KINDS)}"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The documents of one file by their role; None if there is none.

    `notes` report ignored or deprecated documents. `older` maps each kind that is not of the current version to its
    version.
    """

    by_kind: Mapping[str, Document] = field(default_factory=dict)
    notes: Sequence[str] = ()
    older: Mapping[str, str] = field(default_factory=dict)

    def get(self, kind: str) -> Document | None:
        """Return the document of a kind."""
        return self.by_kind.get(kind)


def select(documents: Sequence[Document], *, strict: bool, use: Collection[str] = OF_INIT, allow_deprecated: bool = False) -> Selection:
    """Sort documents by kind; `use` are the kinds that the caller reads, and others are ignored with a note.

    Raises DocumentError with all reasons: no kind or apiVersion, a kind given twice, an unreadable version; with
    `strict` also unknown kinds, which otherwise are ignored. If `init` does not read the file, only the kinds in `use`
    are checked, unless `strict`. `allow_deprecated`: no note about v1beta3.
    """
    problems: list[str] = []
    notes: list[str] = []
    found: dict[str, tuple[_GVK, Document]] = {}
    for document in documents:
        gvk = _identify(document)
        problem = note = ""
        if isinstance(gvk, str):
            problem = shortened(gvk)
        elif gvk.kind in found:
            problem = f"kind {gvk.kind} is given twice, first in {found[gvk.kind][1].where()}"
        else:
            found[gvk.kind] = gvk, document
            if gvk.kind in use or len(problems) + len(notes) < MOST_SHOWN:
                problem, note = map(shortened, _verdict(gvk, strict=strict, use=use, allow_deprecated=allow_deprecated))
        if problem and len(problems) < MOST_SHOWN:
            problems.append(f"{document.where()}: {problem}")
        if note:
            notes.append(f"{document.where()}: {note}")
    if problems:
        source = documents[0].source or "the configuration"
        raise DocumentError(f"{source} cannot be read", detail="\n".join(problems), remedy=_REMEDY)
    used = {kind: document for kind, (gvk, document) in found.items() if kind in use and gvk.known}
    versions = {kind: found[kind][0].version for kind in used if found[kind][0].group == GROUP}
    return Selection(by_kind=used, notes=tuple(notes), older={kind: version for kind, version in versions.items() if version != CURRENT})


def require(selection: Selection, kind: str, *, source: str) -> None:
    """Require a file to contain the one kind that a command reads. Raises DocumentError."""
    if selection.get(kind) is None:
        raise DocumentError(f"{source or 'the configuration'} contains no {kind}", remedy=f"add one with apiVersion {API_VERSION}")


def require_init(selection: Selection, *, source: str) -> None:
    """Require a file to contain one of the kinds that `init` reads. Raises DocumentError."""
    if selection.get(INIT) is None and selection.get(CLUSTER) is None:
        raise DocumentError(
            f"{source or 'the configuration'} contains no {INIT} and no {CLUSTER}", remedy=f"add one with apiVersion {API_VERSION}"
        )


def given(document: Document | None, path: str) -> object | None:
    """Return the raw value at a dotted path of a document; None if it is missing or empty, so that the default applies."""
    value: object = document.value if document else None
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value or None


@dataclass(frozen=True, kw_only=True)
class _GVK:
    group: str
    version: str
    kind: str

    @property
    def known(self) -> bool:
        if self.group == GROUP:
            return self.kind in READABLE.get(self.version, ())
        return COMPONENT_GROUPS.get(self.group) == (self.version, self.kind)

    def __str__(self) -> str:
        return f"{self.group}/{self.version} {self.kind}"


def _identify(document: Document) -> _GVK | str:
    """Return the kind of a document, or why it cannot be determined."""
    value = document.value
    if not isinstance(value, Mapping):
        return "a document must be a map with apiVersion and kind"
    api_version, kind = (_loosely(value, name) for name in META)
    if not api_version or not kind:
        return f"apiVersion and kind must be given, and be strings{_named(apiVersion=api_version, kind=kind)}"
    group, slash, version = api_version.partition("/")
    if not slash or not group or not version or "/" in version:
        return f"apiVersion {quoted(api_version)} of {quoted(kind)} must be a group and a version, such as {API_VERSION}"
    found = _GVK(group=group, version=version, kind=kind)
    exact = (value.get("apiVersion"), value.get("kind")) == (api_version, kind)
    return "apiVersion and kind must be spelled like this, and be strings" if found.known and not exact else found


def _loosely(value: Mapping[str, object], name: str) -> str:
    """Return a value as kubeadm reads it to identify a document: the case of names is ignored, numbers and booleans are text."""
    found = value.get(name)
    if found is None:
        found = next((one for key, one in value.items() if key.lower() == name.lower()), None)
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int | float) else ""


def _named(**values: str) -> str:
    """Return which of the two fields a document has, to help find it."""
    given = [f"{name} {quoted(value)}" for name, value in values.items() if value]
    return f"; it has {' and '.join(given)} only" if given else ""


def _verdict(gvk: _GVK, *, strict: bool, use: Collection[str], allow_deprecated: bool) -> tuple[str, str]:
    """Return what is wrong with a kind, and the note if it is ignored or deprecated."""
    judged = strict or INIT in use or gvk.kind in use
    if not gvk.known:
        return _unknown(gvk, strict=strict, use=use, judged=judged)
    if gvk.kind not in use:
        return "", f"{gvk.kind} is ignored here"
    if gvk.group == GROUP and gvk.version in removed.STILL_READ:
        return (
            "",
            f"{gvk} is read as kubeadm {removed.STILL_READ[gvk.version]} read it, and written as {API_VERSION}; kubeadm v1.36 refuses it",
        )
    if gvk.version == DEPRECATED and gvk.group == GROUP and not allow_deprecated:
        return "", f"{gvk} is deprecated; `config migrate` rewrites it as {API_VERSION}"
    return "", ""


def _unknown(gvk: _GVK, *, strict: bool, use: Collection[str], judged: bool) -> tuple[str, str]:
    """Return why a kind is unknown: as an error, or as a note if only the kinds that are read are checked."""
    if gvk.group == GROUP and gvk.version in removed.STILL_READ and gvk.kind in removed.KINDS:
        return "", f"{gvk} is ignored: {removed.KINDS[gvk.kind]}"
    if gvk.group == GROUP and (gvk.version in removed.LAST_MIGRATOR or gvk.kind in removed.KINDS) and judged:
        return _obsolete(gvk), ""
    if gvk.group in COMPONENT_GROUPS and judged:
        return removed.COMPONENT_KINDS.get(gvk.kind) or _component_problem(gvk), ""
    unknown = f"{gvk} is an unknown kind{_suggestion(gvk)}"
    needed = gvk.kind in use and gvk.kind in KINDS  # by its name alone, as kubeadm looks for it
    return (unknown, "") if strict or needed else ("", unknown)


def _suggestion(gvk: _GVK) -> str:
    """Return the kind and version that were probably meant, as the end of a sentence."""
    groups = {
        GROUP: (API_VERSION, KINDS),
        **{group: (f"{group}/{version}", (kind,)) for group, (version, kind) in COMPONENT_GROUPS.items()},
    }
    homes = {kind: api_version for api_version, kinds in groups.values() for kind in kinds}
    kind = gvk.kind if gvk.kind in homes else closest(gvk.kind, homes)
    if not kind or (gvk.group not in groups and not closest(gvk.group, groups)):
        return ""
    return f"; did you mean {homes[kind]} {kind}?"


def _obsolete(gvk: _GVK) -> str:
    old = ""
    if gvk.version in LAST_MIGRATOR:
        last = LAST_MIGRATOR[gvk.version]
        old = f"{GROUP}/{gvk.version} is too old; kubeadm {last} is the last one that can migrate it (`kubeadm config migrate`)"
    return "; ".join(filter(None, (old, GONE.get(gvk.kind))))


def _component_problem(gvk: _GVK) -> str:
    version, kind = COMPONENT_GROUPS[gvk.group]
    if gvk.version != version:
        return f"{gvk.group}/{gvk.version} is not supported; convert the document to {gvk.group}/{version} by hand"
    return f"of {gvk.group}/{version} only {kind} can be used, not {gvk.kind}"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The documents by kind and the findings in each.

    `strict`: unknown and repeated fields are errors, otherwise warnings.
    """

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
        """Return the warnings. Raises ValidationError with all errors, in the order of the file."""
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
        """Return the first position of each text in a list.

        It is computed once because lists are searched repeatedly and may be long.
        """
        if id(field) not in known:
            # Names are converted to lower case before they are validated.
            places = {entry.lower(): index for index, entry in reversed([*enumerate(field)]) if isinstance(entry, str)}
            known[id(field)] = places
        return known[id(field)]

    return lambda path, value: document.where(path.text + _inside(document.at(path.text), value, entries))


def _inside(field: object, value: object, entries: Callable[[list[object]], Mapping[str, int]]) -> str:
    """Return the step into a list or map that leads to the invalid entry; '' if it is unknown."""
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
        from kubewright.apis.kubeadm import explanations

        return explanations.unknown_field(kind, path.text, meant)

    return hint
