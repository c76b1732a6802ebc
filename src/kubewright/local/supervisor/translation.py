"""From a container of a static pod to the process that stands for it. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldErrorType
from kubewright.base.records import dataclass
from kubewright.local.supervisor.fieldreader import FieldReader
from kubewright.local.supervisor.model import NodeFacts
from kubewright.local.supervisor.mounts import rewriter, why_not
from kubewright.local.supervisor.pod import Container, Mount, StaticPod

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([-._a-zA-Z0-9]+)\))", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What to execute. `argv[0]` is the executable; `env` is what the manifest asks for, nothing inherited."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str = ""
    mounts: tuple[Mount, ...] = ()

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits over program, arguments and environment: whether a running process is still the right one."""
        text = json.dumps([self.argv, dict(self.env), self.working_dir], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def translate(pod: StaticPod, container: Container, *, node: NodeFacts, programs: Mapping[str, Path]) -> Launch:
    """Return the process of a container. Raises ValidationError with every field that a process cannot honour."""
    reader = FieldReader(pod.source)
    plain = _environment(pod, container, node)
    words = tuple(expand(word, plain) for word in (*container.command, *container.args))
    texts = (*words[1:], *plain.values(), container.working_dir)
    for mount in container.mounts:
        if reason := why_not(mount, texts):
            reader.refuse(mount.path / "mountPath", reason, value=mount.mount_path)
    program = programs.get(words[0])
    if program is None:
        known = ", ".join(sorted(programs)) or "none"
        where = (container.path / "command")[0]
        reader.refuse(where, f"programs of this machine: {known}", type=FieldErrorType.UNSUPPORTED, value=words[0])
    if reader.errors:
        raise ValidationError(f"the static pod {pod.name} cannot run as a process", reader.errors, remedy=f"correct {pod.source}")
    rewrite = rewriter(container.mounts)
    return Launch(
        argv=(str(program), *(rewrite(word) for word in words[1:])),
        env={name: rewrite(value) for name, value in plain.items()},
        working_dir=rewrite(container.working_dir),
        mounts=container.mounts,
    )


def _environment(pod: StaticPod, container: Container, node: NodeFacts) -> dict[str, str]:
    fields = {
        "metadata.name": f"{pod.name}-{node.name}",
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.hash,
        "spec.nodeName": node.name,
        "status.hostIP": node.ip,
        "status.hostIPs": node.ip,
        "status.podIP": node.ip,
        "status.podIPs": node.ip,
    }
    found: dict[str, str] = {}
    for variable in container.env:
        found[variable.name] = fields[variable.field] if variable.field else expand(variable.value, found)
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by a variable's value and `$$` by `$`; a reference to an unknown name stays (Kubernetes API, Container.command)."""

    def one(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "$"
        return variables.get(name, match[0])

    return _REFERENCE.sub(one, text)
