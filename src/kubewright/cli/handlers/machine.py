"""The machine that commands look at and work on. Tests put another one in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import Detected, Layout

if TYPE_CHECKING:
    from kubewright.host.files import Files
    from kubewright.host.seam import Host

_KUBEADMS: Final = Layout()


def host(layout: Layout = _KUBEADMS, *, files: Files | None = None) -> Host:
    """Return this machine with its services."""
    from kubewright.host.real import RealHost  # a configuration that leaves nothing open needs no machine

    return RealHost(layout=layout, files=files, looks_for_services=True)


def detected() -> Detected:
    """Return what this machine tells about itself."""
    return host().facts.detected
