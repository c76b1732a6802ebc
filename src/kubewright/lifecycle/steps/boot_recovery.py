"""A unit that is installed while an operation replaces files that belong together. It runs at boot, before the kubelet.

A component that finds a certificate without its key does not start, nor does one whose manifest a restore of etcd keeps
while it replaces the data. After a power cut, the unit brings such files to one side, so that the machine starts by
itself. It asks no questions and restarts nothing: the operation itself continues only when the user runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.change import Change
from kubewright.base.errors import HostError
from kubewright.base.events import Reporter, Warned
from kubewright.host.desired import File, Service
from kubewright.host.seam import Host
from kubewright.lifecycle.steps import checkpoint
from kubewright.manifests import units

SERVICE: Final = "kubewright-recover"
COMMAND: Final = "recover"
"""The command that the unit runs."""
_UNIT: Final = """\
# Installed by kubewright while files of this machine are being replaced, and removed afterwards.
[Unit]
Description=kubewright: complete files that were being replaced when the machine lost power
Before=kubelet.service

[Service]
Type=oneshot
ExecStart={program} {arguments}

[Install]
WantedBy=multi-user.target
"""


def unit_path(host: Host) -> PurePosixPath:
    """Return the path of the unit."""
    return host.layout.units / f"{SERVICE}.service"


@contextmanager
def enabled(host: Host, program: Sequence[str], *, needed: bool, reporter: Reporter) -> Iterator[None]:
    """Install the unit while an operation is running, and longer if that leaves a checkpoint in progress.

    `program` is the command of kubewright. If the service manager does not accept it, the consequences are reported.
    Does nothing unless it is `needed`.
    """
    if not needed:
        yield
        return
    try:
        _install(host, program)
    except HostError as error:
        host.remove(unit_path(host), own=(unit_path(host),))
        reporter.emit(Warned(text=f"if this machine loses power now, run the same command again after it has booted: {error}"))
        yield
        return
    try:
        yield
    finally:
        remove_unneeded(host)


def _install(host: Host, program: Sequence[str]) -> None:
    text = _UNIT.format(program=units.program(PurePosixPath(program[0])), arguments=units.arguments(*program[1:], COMMAND))
    unit = File(path=unit_path(host), content=text.encode(), mode=0o644)
    host.ensure(Service(name=SERVICE, running=False, enabled=True, units=(unit,)))


def remove(host: Host) -> Change:
    """Remove the unit."""
    return host.remove_units(SERVICE, units=(unit_path(host),))


def remove_unneeded(host: Host) -> list[Change]:
    """Remove the unit unless an operation is in progress on this machine."""
    return [] if checkpoint.unfinished(checkpoint.every(host)) is not None else [remove(host)]
