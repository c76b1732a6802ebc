"""A local machine as a Host: kubeadm's tree below a directory, the cluster's daemon for a kubelet, binaries for images."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import kubewright
from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, BinariesError, ComponentFailed, HostError, Locked
from kubewright.base.waiting import Waiter
from kubewright.host.files import Files
from kubewright.host.real import RealHost
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import Container, RuntimeStatus, Sandbox, ServiceState
from kubewright.local import launch, remedies
from kubewright.local.control import Control
from kubewright.local.places import Places

LISTENS_WITHIN = 20.0
"""Seconds after which a daemon that does not listen hangs; on an idle machine it does within half a second."""

KUBELET = "kubelet"
"""The one service of a local machine. The cluster's daemon stands for it, for all machines."""


def local_machine(
    places: Places, name: str, *, programs: Mapping[str, Path], daemon: Daemon, further: bool = False, durable: bool = True
) -> RealHost:
    """Return the Host of one machine of a cluster. `further` says that it is not the first one, whose kubelet comes with the daemon."""
    return RealHost(
        layout=places.layout(name),
        files=Files(durable=durable),
        services=_FurtherServices(places, name, daemon) if further else _Services(daemon),
        runtime=_Programs(places.logs(name), programs),
        environment={},
    )


class Daemon:
    """The cluster's daemon, as `up` sees it: started early, waited for late."""

    def __init__(self, places: Places, *, control: Control | None = None) -> None:
        self._places = places
        self._control = control or Control(places)
        self._process: launch.Started | None = None
        self._retry_is_due = False

    @property
    def log(self) -> Path:
        """Where it writes what it has to say."""
        return self._places.daemon_log

    @property
    def runs(self) -> bool:
        """Whether it was started here and lives, or is there from before."""
        if self._process is not None and self._process.poll() != Locked.exit_code:  # that one: another was there before it
            return self._process.poll() is None
        return launch.identity(self._places) is not None

    def start(self) -> None:
        """Start it, unless it runs."""
        if not self.runs:
            self._process = launch.spawn(self._places)

    def retry(self) -> None:
        """Start components at once that wait for the end of their back-off: what they lacked may have come."""
        self._retry_is_due = True
        self.retried()

    def retried(self) -> bool:
        """Whether it knows of the last `retry`; it is told again where it did not answer. Until then components fail for old reasons."""
        if self._retry_is_due:
            try:
                self._control.retry()
            except APIError:  # it does not listen yet, or it hangs: whoever waits for it will tell
                return False
            except HostError:  # it refuses: it is from before an update
                pass
            self._retry_is_due = False
        return True

    def require_alive(self) -> None:
        """Raise ComponentFailed, with its last words, if it has ended."""
        if not self.runs:
            code = "" if self._process is None else _how(self._process.returncode)
            words = launch.last_lines(self._places.daemon_log)
            raise ComponentFailed(
                f"the daemon of cluster {self._places.name!r} ended{code}",
                detail="\n".join(words),
                remedy=f"{remedies.of(words, f'see {self._places.daemon_log}')}, then run `kubewright up` again",
            )

    def serving(self, *, waiter: Waiter) -> Control:
        """Wait until it listens on its control socket. Raises ComponentFailed with its last words if it ends before."""

        def ready() -> str | None:
            self.require_alive()
            return None if self._control.answers() else "it does not listen yet"

        there = launch.identity(self._places)
        remedy = f"end it (`kill -9 {there.pid}`; the components go on), then run `kubewright up` again" if there is not None else ""
        waiter.until(ready, within=LISTENS_WITHIN, saying="the cluster's daemon", every=0.01, at_most=0.1, remedy=remedy)
        return self._control


def _how(code: int) -> str:
    return f" with exit code {code}" if code >= 0 else f", killed by {signal.Signals(-code).name}"


class _Services:
    """The service manager of a local machine: it knows the kubelet, which is the daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def state(self, name: str, /) -> ServiceState | None:
        return ServiceState(running=self._daemon.runs, enabled=True) if name == KUBELET else None

    def start(self, name: str, /) -> None:
        self._known(name)
        self._daemon.start()

    def stop(self, name: str, /) -> None:
        raise _not_here(name, "stopped")

    def restart(self, name: str, /) -> None:
        """Nothing needs it: the supervisor watches the files that a kubelet would read at its start."""
        self.start(name)

    def enable(self, name: str, /) -> None:
        self._known(name)

    def disable(self, name: str, /) -> None:
        raise _not_here(name, "disabled")

    def reload(self) -> None:
        """There are no unit files."""

    def last_lines(self, name: str, /, *, count: int) -> list[str]:
        return launch.last_lines(self._daemon.log, lines=count) if name == KUBELET else []

    def _known(self, name: str) -> None:
        if name != KUBELET:
            raise _not_here(name, "started")


class _FurtherServices(_Services):
    """The service manager of a machine that joins: its kubelet is a part of the daemon that begins when it is told to."""

    def __init__(self, places: Places, machine: str, daemon: Daemon) -> None:
        super().__init__(daemon)
        self._control = Control(places)
        self._machine = machine

    def state(self, name: str, /) -> ServiceState | None:
        return ServiceState(running=self._begun(), enabled=True) if name == KUBELET else None

    def start(self, name: str, /) -> None:
        super().start(name)
        self._control.begin(self._machine)

    def stop(self, name: str, /) -> None:
        """End the node; its static pods go on, as they do where a kubelet is stopped."""
        self._known(name)
        self._control.rest(self._machine)

    def restart(self, name: str, /) -> None:
        """Let the node read its files again."""
        self.stop(name)
        self.start(name)

    def _begun(self) -> bool:
        try:
            return self._machine in self._control.status()["nodes"]["machines"]
        except (APIError, HostError):
            return False


def _not_here(name: str, verb: str) -> HostError:
    return HostError(f"service {name} cannot be {verb} on a local machine", remedy="`kubewright down` stops the whole cluster")


class _Programs:
    """The container runtime of a local machine: an image is there when the program of its name is."""

    def __init__(self, logs: Path, programs: Mapping[str, Path]) -> None:
        self._logs = logs
        self._programs = programs

    def version(self) -> RuntimeVersion:
        return RuntimeVersion(name="kubewright", version=kubewright.__version__)

    def has_image(self, image: str, /) -> bool:
        return _program(image) in self._programs

    def last_lines(self, pod: str, /, *, count: int) -> list[str]:
        return launch.last_lines(self._logs / f"{pod}.log", lines=count)

    def pull(self, image: str, /) -> Change:
        if not self.has_image(image):
            raise BinariesError(
                f"there is no program for the image {image}",
                detail=f"local machines have {', '.join(sorted(self._programs))}",
                remedy="use the names that kubeadm gives its images",
            )
        return Change(target=f"image {image}", action=Action.NONE)

    def status(self) -> RuntimeStatus:
        return RuntimeStatus()

    def cgroup_driver(self) -> str | None:
        return None

    def sandboxes(self) -> list[Sandbox]:
        return []

    def containers(self, *, namespace: str) -> list[Container]:
        """There are none: what a manifest names runs as a process of the daemon, which tells about it (`local status`)."""
        return []

    def remove_sandbox(self, sandbox: Sandbox, /) -> Change:
        return Change(target=sandbox.target, action=Action.NONE)


def _program(image: str) -> str:
    """Return the last path element of an image name, without tag and digest."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]
