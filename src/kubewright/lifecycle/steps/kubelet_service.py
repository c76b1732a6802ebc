"""The kubelet's service if a package or a user installed its unit: its state before we enabled it, and restoring that.

The state is stored in a separate file, which is written before the first change and stays until everything of the node
is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from kubewright.base.change import Change
from kubewright.host.desired import File, Service, Show
from kubewright.host.seam import Host
from kubewright.host.states import ServiceState
from kubewright.manifests import kubelet

SERVICE: Final = "kubelet"
_ENABLED: Final = "enabled"
_PRIVATE: Final = 0o700


def is_of_others(host: Host, found: ServiceState | None) -> bool:
    """Return whether the unit of an existing service was not installed by us."""
    return found is not None and not kubelet.is_ours(host.read(kubelet.UNIT))


def remember(host: Host) -> Iterator[Change]:
    """Store whether the service is enabled. A value of an earlier run stays: it is from before that run's changes."""
    found = host.service(SERVICE)
    if found is not None and is_of_others(host, found) and host.state(host.layout.kubelet_service) is None:
        content = f"{json.dumps({_ENABLED: found.enabled})}\n".encode()
        yield host.ensure(File(path=host.layout.kubelet_service, content=content, show=Show.SIZE, directory_mode=_PRIVATE))


def to_restore(host: Host) -> Service | None:
    """Return the service in its former state, None if none is stored, or it is already in it."""
    content, found = host.read(host.layout.kubelet_service), host.service(SERVICE)
    if content is None or found is None:
        return None
    try:
        enabled = json.loads(content)[_ENABLED]
    except (ValueError, LookupError, TypeError):  # a damaged file is ignored
        return None
    return Service(name=SERVICE, running=False, enabled=enabled) if enabled is not found.enabled and isinstance(enabled, bool) else None
