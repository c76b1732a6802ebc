"""A replacement for a container runtime: the process of a container, and how it is started."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, ValidationError
from kubewright.base.events import Event
from kubewright.base.fields import FieldErrorType
from kubewright.base.records import dataclass
from kubewright.host.filesystem.trees import remove_tree
from kubewright.local.mark import Mark
from kubewright.local.supervisor.decoding import FieldReader
from kubewright.local.supervisor.pod import Container, Mount, StaticPod
from kubewright.local.supervisor.probes import Prober
from kubewright.local.supervisor.process import Process
from kubewright.local.supervisor.procfs import COMPONENT, LAUNCH, MACHINE, MANIFEST
from kubewright.local.supervisor.state import NodeAddress, RecordStore, slug

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of every process."""
SEARCHED: Final = (
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/dev",
    "/proc",
    "/sys",
)
"""Paths that programs open by default.

CA bundles (Go's crypto/x509, kubeadm v1.36: phases/controlplane/volumes.go), names, users, time zones, devices.
"""

_BEFORE: Final = r"""(?:(?<![^=,:;\s"'])|(?<=://))"""
_AFTER: Final = r"""(?=$|[/,:;\s"'])"""

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([-._a-zA-Z0-9]+)\))", re.ASCII)
_IS: Final[dict[str, Callable[[int], bool]]] = {"Directory": stat.S_ISDIR, "File": stat.S_ISREG, "Socket": stat.S_ISSOCK}


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """The process to execute.

    `argv[0]` is the executable; `env` comes from the manifest alone, nothing is inherited.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str = ""
    mounts: tuple[Mount, ...] = ()

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits over program, arguments and environment, for comparison with a running process."""
        text = json.dumps([self.argv, dict(self.env), self.working_dir], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def translate(pod: StaticPod, container: Container, *, node: NodeAddress, programs: Mapping[str, Path]) -> ProcessSpec:
    """Return the process of a container. Raises ValidationError with every field that a process cannot satisfy."""
    reader = FieldReader(pod.source)
    plain = _environment(pod, container, node)
    words = tuple(expand(word, plain) for word in (*container.command, *container.args))
    texts = (*words[1:], *plain.values(), container.working_dir)
    for mount in container.mounts:
        if reason := refusal_of(mount, texts):
            reader.refuse(mount.path / "mountPath", reason, value=mount.mount_path)
    program = programs.get(words[0])
    if program is None:
        known = ", ".join(sorted(programs)) or "none"
        where = (container.path / "command")[0]
        reader.refuse(where, f"programs of this machine: {known}", type=FieldErrorType.UNSUPPORTED, value=words[0])
    if reader.errors:
        raise ValidationError(f"the static pod {pod.name} cannot run as a process", reader.errors, remedy=f"correct {pod.source}")
    rewrite = rewriter(container.mounts)
    return ProcessSpec(
        argv=(str(program), *(rewrite(word) for word in words[1:])),
        env={name: rewrite(value) for name, value in plain.items()},
        working_dir=rewrite(container.working_dir),
        mounts=container.mounts,
    )


def _environment(pod: StaticPod, container: Container, node: NodeAddress) -> dict[str, str]:
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
    """Replace `$(NAME)` by a variable's value and `$$` by `$`.

    A reference to an unknown name stays (Kubernetes API, Container.command).
    """

    def one(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "$"
        return variables.get(name, match[0])

    return _REFERENCE.sub(one, text)


def rewriter(mounts: Sequence[Mount]) -> Callable[[str], str]:
    """Return a function that replaces container paths in a text by host paths.

    The longest mount path wins, each position is replaced once.
    """
    moved = {mount.mount_path: mount.host_path for mount in mounts}
    if all(inside == outside for inside, outside in moved.items()):
        return lambda text: text
    choice = "|".join(re.escape(path) for path in sorted(moved, key=len, reverse=True))
    pattern = re.compile(f"{_BEFORE}({choice}){_AFTER}")
    return lambda text: pattern.sub(lambda match: moved[match[1]], text)


def refusal_of(mount: Mount, texts: Sequence[str]) -> str | None:
    """Return why a process with these arguments and variables does not work without this mount, or None if it does."""
    if mount.mount_path == mount.host_path:
        return None
    for place in SEARCHED:
        if _within(mount.mount_path, place) or _within(place, mount.mount_path):
            return f"programs read {place} by default, and a process would read the host's; use the same path on the host"
    pattern = re.compile(f"{_BEFORE}{re.escape(mount.mount_path)}{_AFTER}")
    if not any(pattern.search(text) for text in texts):
        return f"no argument or variable names it, so the process would not find {mount.host_path}; use the same path on the host"
    return None


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent + "/")


def ensure_host_path(mount: Mount) -> None:
    """Create the path as the volume's type requires, readable for us only, or check that it exists.

    Raises HostError naming the path.
    """
    path = Path(mount.host_path)
    try:
        if mount.type == "DirectoryOrCreate":
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif mount.type == "FileOrCreate":
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        elif mount.type:
            _check(path, mount.type)
    except OSError as error:
        raise HostError(
            f"the hostPath {path} of {mount.path} cannot be created as {mount.type}",
            detail=error.strerror or str(error),
            remedy="create it, or correct the volume",
        ) from error


def _check(path: Path, kind: str) -> None:
    if not _IS[kind](path.stat().st_mode):
        raise HostError(f"the hostPath {path} is not a {kind}", remedy="correct the volume")


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The parts that all components of one machine share: directories, seams, and the function that starts a process."""

    run: Path
    logs: Path
    node: NodeAddress
    mark: Mark
    clock: Clock
    prober: Prober
    records: RecordStore
    emit: Callable[[Event], None]
    changed: Callable[[], None]
    may_start: Callable[[str], Awaitable[None]]
    """Returns once the pods are ready on which a pod depends."""

    def log(self, component: str) -> Path:
        """Return a component's log file."""
        return self.logs / f"{slug(component)}.log"

    def directory(self, component: str) -> Path:
        """Return the working directory of a component, which also contains its temporary files."""
        return self.run / slug(component)

    def spawn(self, component: str, spec: ProcessSpec, *, manifest: str) -> Process:
        """Start a component's process. Raises OSError or HostError."""
        directory = self.directory(component)
        directory.mkdir(mode=0o700, exist_ok=True)  # not its parents: if they were removed, nothing must be created again
        for mount in spec.mounts:
            ensure_host_path(mount)
        return Process.spawn(
            spec.argv,
            env=self._environment(component, spec, manifest, str(directory)),
            cwd=spec.working_dir or str(directory),
            log=self.log(component),
        )

    def _environment(self, component: str, spec: ProcessSpec, manifest: str, directory: str) -> dict[str, str]:
        # TZ: klog writes local time without a zone; containers have no /etc/localtime, so UTC is what readers expect.
        return {
            "PATH": PATH,
            "HOME": directory,
            "TMPDIR": directory,
            "TZ": "UTC",
            **spec.env,
            **self.mark.variables,
            MACHINE: self.node.name,
            COMPONENT: component,
            MANIFEST: manifest,
            LAUNCH: spec.digest,
        }

    def forget(self, component: str) -> None:
        """Remove a stopped component's record and directory; its log stays."""
        self.records.remove(component)
        with suppress(HostError):  # leftovers are removed with the cluster
            remove_tree(PurePosixPath(self.directory(component)))
