"""A local machine as a Host: kubeadm's tree below a directory, the cluster's daemon as a kubelet, binaries as images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import kubewright
from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, BinariesError, HostError
from kubewright.host.filesystem.files import Files
from kubewright.host.real import RealHost
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import Container, RuntimeStatus, Sandbox, ServiceState
from kubewright.local import daemon_process
from kubewright.local.cluster.daemon_client import ControlClient, Daemon
from kubewright.local.paths import ClusterPaths

KUBELET = "kubelet"
"""The only service of a local machine. The cluster's daemon acts as this service, for all machines."""


def machine_host(
    paths: ClusterPaths, name: str, *, programs: Mapping[str, Path], daemon: Daemon, further: bool = False, durable: bool = True
) -> RealHost:
    """Return the Host of one machine of a cluster.

    `further` means that it is not the first one, whose kubelet starts with the daemon.
    """
    return RealHost(
        layout=paths.layout(name),
        files=Files(durable=durable),
        services=_JoiningKubeletService(paths, name, daemon) if further else _KubeletService(daemon),
        runtime=_ProgramsAsImages(paths.logs(name), programs),
        environment={},
    )


class _KubeletService:
    """The service manager of a local machine: it knows the kubelet, which is the daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def state(self, name: str, /) -> ServiceState | None:
        return ServiceState(running=self._daemon.runs, enabled=True) if name == KUBELET else None

    def start(self, name: str, /) -> None:
        self._known(name)
        self._daemon.start()

    def stop(self, name: str, /) -> None:
        raise _unsupported(name, "stopped")

    def restart(self, name: str, /) -> None:
        """Do nothing: the supervisor watches the files that a kubelet would read at its start."""
        self.start(name)

    def enable(self, name: str, /) -> None:
        self._known(name)

    def disable(self, name: str, /) -> None:
        raise _unsupported(name, "disabled")

    def reload(self) -> None:
        """Do nothing: there are no unit files."""

    def is_stopping(self) -> bool:
        return False

    def last_lines(self, name: str, /, *, count: int) -> list[str]:
        return daemon_process.last_lines(self._daemon.log, lines=count) if name == KUBELET else []

    def _known(self, name: str) -> None:
        if name != KUBELET:
            raise _unsupported(name, "started")


class _JoiningKubeletService(_KubeletService):
    """The service manager of a joining machine, whose kubelet is a part of the daemon that starts on request."""

    def __init__(self, paths: ClusterPaths, machine: str, daemon: Daemon) -> None:
        super().__init__(daemon)
        self._control = ControlClient(paths)
        self._machine = machine

    def state(self, name: str, /) -> ServiceState | None:
        return ServiceState(running=self._begun(), enabled=True) if name == KUBELET else None

    def start(self, name: str, /) -> None:
        super().start(name)
        self._control.begin(self._machine)

    def stop(self, name: str, /) -> None:
        """Stop the node; its static pods keep running, as they do when a kubelet is stopped."""
        self._known(name)
        self._control.rest(self._machine)

    def restart(self, name: str, /) -> None:
        """Make the node read its files again."""
        self.stop(name)
        self.start(name)

    def _begun(self) -> bool:
        try:
            return self._machine in self._control.status()["nodes"]["machines"]
        except (APIError, HostError):
            return False


def _unsupported(name: str, verb: str) -> HostError:
    return HostError(f"service {name} cannot be {verb} on a local machine", remedy="`kubewright down` stops the whole cluster")


class _ProgramsAsImages:
    """The container runtime of a local machine: an image exists if the program of its name exists."""

    def __init__(self, logs: Path, programs: Mapping[str, Path]) -> None:
        self._logs = logs
        self._programs = programs

    def version(self) -> RuntimeVersion:
        return RuntimeVersion(name="kubewright", version=kubewright.__version__)

    def has_image(self, image: str, /) -> bool:
        return _program(image) in self._programs

    def last_lines(self, pod: str, /, *, count: int, container: str = "") -> list[str]:  # one file for all runs
        return daemon_process.last_lines(self._logs / f"{pod}.log", lines=count)

    def pull(self, image: str, /) -> Change:
        if not self.has_image(image):
            raise BinariesError(
                f"the image {image} has no program",
                detail=f"local machines have {', '.join(sorted(self._programs))}",
                remedy="use the names that kubeadm gives its images",
            )
        return Change(target=f"image {image}", action=Action.NONE)

    def status(self) -> RuntimeStatus:
        return RuntimeStatus()

    def sandbox_image(self) -> str:
        return ""

    def image_directories(self) -> Sequence[PurePosixPath]:
        return []

    def cgroup_driver(self) -> str | None:
        return None

    def sandboxes(self) -> list[Sandbox]:
        return []

    def containers(self, *, namespace: str) -> list[Container]:
        """Return none: the containers of a manifest are processes of the daemon, which reports them (`local status`)."""
        return []

    def stop_sandbox(self, sandbox: Sandbox, /) -> Change:
        return Change(target=sandbox.target, action=Action.NONE)

    def remove_sandbox(self, sandbox: Sandbox, /) -> Change:
        return Change(target=sandbox.target, action=Action.NONE)


def _program(image: str) -> str:
    """Return the last path element of an image name, without tag and digest."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]
