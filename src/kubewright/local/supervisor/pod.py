"""A static pod for the supervisor: plain values, read from a manifest by `decoding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubewright.base.fields import FieldPath
from kubewright.base.records import dataclass

DEFAULT_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL if a pod sets none.

The API's default is 30, and kube-apiserver uses all of them while watches are open (more than 20 s with
kube-controller-manager connected); all its state is in etcd, and etcd exits within hundredths of a second.
"""


@dataclass(frozen=True, kw_only=True)
class HttpTarget:
    """An HTTP GET. Certificates are not verified, as in the kubelet. An empty `host` means the pod's address."""

    port: int
    path: str = "/"
    host: str = ""
    secure: bool = False
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class TcpTarget:
    """A port that accepts connections. An empty `host` means the pod's address."""

    port: int
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The conditions under which a container counts as started, ready or alive.

    Times are in seconds; the defaults are those of the API.
    """

    target: HttpTarget | TcpTarget
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace: float | None = None
    """Seconds between SIGTERM and SIGKILL when this probe ends the container; None: the pod's."""


@dataclass(frozen=True, kw_only=True)
class Variable:
    """An environment variable: a literal `value`, or the pod field named by `field`."""

    name: str
    value: str = ""
    field: str = ""
    path: FieldPath


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A directory or file of the host and its path in the container. Paths have no trailing slash."""

    mount_path: str
    host_path: str
    type: str = ""
    """The hostPath type: '' (no check), Directory, DirectoryOrCreate, File, FileOrCreate, Socket."""
    path: FieldPath


@dataclass(frozen=True, kw_only=True)
class Container:
    """One program of a pod. `path` is its position in the manifest."""

    name: str
    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    mounts: tuple[Mount, ...] = ()
    working_dir: str = ""
    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
    path: FieldPath


@dataclass(frozen=True, kw_only=True)
class StaticPod:
    """One manifest.

    `body` is the decoded document, `hash` identifies its content on this node, `source` is the file's name.
    """

    name: str
    namespace: str
    hash: str
    containers: tuple[Container, ...]
    grace: float
    source: str
    body: Mapping[str, Any]

    def component(self, container: Container) -> str:
        """Return the name of a container's component: the pod's, with the container's if the pod has several."""
        return self.name if len(self.containers) == 1 else f"{self.name}/{container.name}"
