"""The patches of users for kubeadm's files: file names, documents, targets, and their application (kubeadm v1.36: util/patches/patches.go).

Pure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.apis import workloads
from kubewright.apis.findings import Findings
from kubewright.base import yaml
from kubewright.base.errors import DocumentError
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass
from kubewright.base.versions import Version
from kubewright.kube import patches, strategic

Body = dict[str, Any]

KUBELET: Final = "kubeletconfiguration"
DNS: Final = "corednsdeployment"
PROXY: Final = "kubeproxydaemonset"

TARGETS: Final[Mapping[str, str]] = {
    "etcd": "Pod",
    "kube-apiserver": "Pod",
    "kube-controller-manager": "Pod",
    "kube-scheduler": "Pod",
    KUBELET: strategic.OPEN,
    DNS: "Deployment",
    PROXY: "DaemonSet",
}
"""The targets of patches, in kubeadm's order, and the type that determines a strategic merge."""

_SINCE: Final = {PROXY: 37}
"""The first minor version of Kubernetes that has a target."""

TYPES: Final[Mapping[str, str]] = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}
_DEFAULT: Final = "strategic"
_EXTENSION: Final = Pattern(r".+\.(?:json|yaml)")
_REMEDY: Final = "fix the patch, or remove the file from the directory"


@dataclass(frozen=True)
class Name:
    """The parts of a patch file's name."""

    target: str
    type: str


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One document of a patch file. `body` is its value, `where` names file and line for messages."""

    target: str
    type: str
    body: Any
    where: str

    @property
    def media_type(self) -> str:
        """The Kubernetes API's name of the type."""
        return TYPES[self.type]


@dataclass(frozen=True)
class Patches:
    """All patches of a run, in the order of their application."""

    items: tuple[Patch, ...] = ()

    def of(self, target: str) -> tuple[Patch, ...]:
        """Return the patches of a target."""
        return tuple(patch for patch in self.items if patch.target == target)

    def apply(self, target: str, body: Mapping[str, Any]) -> Body:
        """Return a body with all patches of a target applied; the same one if there are none.

        Raises DocumentError, naming the patch. The result is as Go would write a static pod: unknown fields are
        removed, and lists are in Go's order.
        """
        wanted = self.of(target)
        if not wanted:
            return dict(body)
        patched: Any = dict(body)
        for patch in wanted:
            patched = _applied(patch, patched)
        return _typed(wanted[-1], patched)


NONE: Final = Patches()


def targets(version: str) -> tuple[str, ...]:
    """Return the targets of a Kubernetes version."""
    minor = Version.parse(version).minor
    return tuple(name for name in TARGETS if minor >= _SINCE.get(name, 0))


def parse_name(name: str, *, known: Sequence[str]) -> Name | None:
    """Parse a file name `TARGET[suffix][+TYPE].EXT`; None for a file that is not a patch.

    Only the prefix counts, as in kubeadm: `etcdbackup.yaml` and `etcd.old.yaml` are patches of etcd. Raises
    DocumentError for an unknown type after `+`.
    """
    found = _pattern(tuple(known)).match(name)
    if found is None or _EXTENSION.fullmatch(name) is None:
        return None
    if found["plus"] and not found["type"]:
        raise DocumentError(
            f"{name}: unknown patch type after '+'",
            remedy=f"the types are {', '.join(TYPES)}; name the file like {found['target']}+{_DEFAULT}.yaml",
        )
    return Name(found["target"], found["type"] or _DEFAULT)


def read(name: Name, content: bytes, *, source: str) -> tuple[Patch, ...]:
    """Read the patches of one file: every YAML document is one. Raises DocumentError."""
    return tuple(
        Patch(target=name.target, type=name.type, body=document.value, where=f"{source}:{document.line}")
        for document in yaml.load_all(content, source=source)
        if document.value is not None
    )


@functools.cache
def _pattern(known: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?P<target>{'|'.join(known)})[^.+\n]*(?P<plus>\+)?(?P<type>{'|'.join(TYPES)})?")


def _applied(patch: Patch, body: Any) -> Any:
    if patch.type != "json" and not isinstance(patch.body, Mapping):
        raise _unfit(patch, f"a {patch.type} patch is a map")
    try:
        if patch.type == "json":
            return patches.apply_json(body, patch.body)
        if patch.type == "merge":
            return patches.apply_merge(body, patch.body)
        return strategic.merge(body, patch.body, type=TARGETS[patch.target])
    except patches.PatchError as error:
        raise _unfit(patch, str(error)) from error


def _typed(last: Patch, body: Any) -> Body:
    """Return a patched object as Go decodes it. Raises DocumentError if it no longer has the required type."""
    kind = TARGETS[last.target]
    if not isinstance(body, Mapping):
        raise _unfit(last, "the result is not an object")
    if kind == strategic.OPEN:
        return dict(body)
    version = "v1" if kind == "Pod" else "apps/v1"
    if (body.get("apiVersion"), body.get("kind")) != (version, kind):
        raise _unfit(last, f"the result is not a {kind} of {version}")
    findings = Findings()
    struct = workloads.kind(kind)
    decoded = struct.decode(body, findings.root)
    if findings.errors:
        raise _unfit(last, "\n".join(map(str, findings.errors)))
    return dict(struct.encode(decoded)) if kind == "Pod" else dict(body)


def _unfit(patch: Patch, detail: str) -> DocumentError:
    return DocumentError(f"{patch.where}: the patch of type {patch.type} does not fit {patch.target}", detail=detail, remedy=_REMEDY)
