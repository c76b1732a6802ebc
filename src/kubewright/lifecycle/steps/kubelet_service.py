"""The kubelet's service where a package, or a person, has brought its unit: what it was before we enabled it, and making it so again.

What it was is kept in a file of its own, which is written before the first change and stays until everything of the node has gone.
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
    """Return whether somebody else than us has brought the unit of a service that was found."""
    return found is not None and not kubelet.is_ours(host.read(kubelet.UNIT))


def remember(host: Host) -> Iterator[Change]:
    """Keep whether the service is enabled. What an earlier run has kept stays: that was before its own changes."""
    found = host.service(SERVICE)
    if found is not None and is_of_others(host, found) and host.state(host.layout.kubelet_service) is None:
        content = f"{json.dumps({_ENABLED: found.enabled})}\n".encode()
        yield host.ensure(File(path=host.layout.kubelet_service, content=content, show=Show.SIZE, directory_mode=_PRIVATE))


def to_restore(host: Host) -> Service | None:
    """Return the service as it was, None if nothing is kept of it, or it is so already."""
    content, found = host.read(host.layout.kubelet_service), host.service(SERVICE)
    if content is None or found is None:
        return None
    try:
        enabled = json.loads(content)[_ENABLED]
    except (ValueError, LookupError, TypeError):  # a damaged file tells nothing
        return None
    return Service(name=SERVICE, running=False, enabled=enabled) if enabled is not found.enabled and isinstance(enabled, bool) else None
