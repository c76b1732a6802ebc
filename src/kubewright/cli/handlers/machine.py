"""The machine on which commands operate. Tests replace it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import Detected, Layout

if TYPE_CHECKING:
    from kubewright.host.filesystem.files import Files
    from kubewright.host.seam import Host

_KUBEADMS: Final = Layout()


def host(layout: Layout = _KUBEADMS, *, files: Files | None = None) -> Host:
    """Return this machine with its services."""
    from kubewright.host.real import RealHost  # a configuration without unset values needs no machine

    return RealHost(layout=layout, files=files, looks_for_services=True)


def detected() -> Detected:
    """Return the facts of this machine."""
    return host().facts.detected


def program_words() -> list[str]:
    """Return the command of this program for systemd: a script or an archive, or a module of this interpreter."""
    found = shutil.which(sys.argv[0])  # argv[0] of the archive's program is the word that was typed
    if found is None or Path(found).name == "__main__.py":
        return [sys.executable, "-m", "kubewright"]
    return [os.path.abspath(found)]  # noqa: PTH100 (links stay)
