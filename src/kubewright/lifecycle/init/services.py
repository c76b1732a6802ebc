"""The service manager of a real machine, as far as it can be seen without asking it: systemd's own links and unit files.

Reading only: what starts and stops services comes with the release that changes machines.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.host.found import Kind, ServiceState
from kubewright.host.seam import FileReader

_RUNS: Final = PurePosixPath("/run/systemd/system")
"""There is such a directory where systemd is the init system (sd_booted(3))."""

_UNITS: Final = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""Where units are looked for, in systemd's order (systemd.unit(5))."""

_ENABLED: Final = PurePosixPath("/etc/systemd/system/multi-user.target.wants")
_ACTIVE: Final = PurePosixPath("/run/systemd/units")
"""Holds a link `invocation:NAME.service` while a unit is active."""


class Unchangeable(HostError):
    """A service that this version knows of and does not start or stop."""


class SeenServices:
    """`host.seam.Services` over the files of a machine. Every writing verb raises Unchangeable."""

    def __init__(self, files: FileReader) -> None:
        self._files = files

    def state(self, name: str, /) -> ServiceState | None:
        unit = f"{name}.service"
        if not self._is(_RUNS, Kind.DIRECTORY) or not any(self._exists(PurePosixPath(place) / unit) for place in _UNITS):
            return None
        return ServiceState(running=self._is(_ACTIVE / f"invocation:{unit}", Kind.LINK), enabled=self._exists(_ENABLED / unit))

    def start(self, name: str, /) -> None:
        raise _later(name)

    def stop(self, name: str, /) -> None:
        raise _later(name)

    def restart(self, name: str, /) -> None:
        raise _later(name)

    def enable(self, name: str, /) -> None:
        raise _later(name)

    def disable(self, name: str, /) -> None:
        raise _later(name)

    def reload(self) -> None:
        raise _later("manager")

    def _exists(self, path: PurePosixPath) -> bool:
        return self._files.state(path) is not None

    def _is(self, path: PurePosixPath, kind: Kind) -> bool:
        found = self._files.state(path)
        return found is not None and found.kind is kind


def _later(name: str) -> Unchangeable:
    return Unchangeable(
        f"service {name} cannot be changed by this version of kubewright",
        detail="starting and stopping services of a real machine comes with a later release",
        remedy="use `--plan` or `--dry-run`, or `kubewright up` for a local cluster",
    )
