"""Which container runtime a machine has."""

from __future__ import annotations

from collections.abc import Sequence

from kubewright.apis.layout import CRI_SOCKET
from kubewright.base.errors import HostError


def choose(found: Sequence[str]) -> str:
    """Return the one socket that was found, the default where there is none. Raises HostError that lists several."""
    if len(found) > 1:
        raise HostError(
            "there are several container runtimes on this machine",
            detail=", ".join(found),
            remedy="name the socket of the one to use with --cri-socket or nodeRegistration.criSocket",
        )
    return found[0] if found else CRI_SOCKET
