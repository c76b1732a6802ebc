"""The leader elections of a control plane whose machines were stopped without notice, by a power cut or by `down --keep-data`.

kube-controller-manager and kube-scheduler wait until the Lease of a former leader has not changed for its full
duration, 15 seconds (client-go: tools/leaderelection/leaderelection.go), and until then no pod is created or scheduled.
A leader that ended with its machine cannot renew its Lease, so it is released on its behalf.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final

from kubewright.base.errors import Conflict, NotFound
from kubewright.kube import lease_rules
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import LEASE

_NAMESPACE: Final = "kube-system"
_ELECTING: Final = ("kube-controller-manager", "kube-scheduler")


def release(api: KubeAPI, *, started: Collection[str], since: float) -> None:
    """Release the Leases whose holders ran on machines that were started since a time, in seconds since 1970.

    A Lease that was renewed later has a living holder, and so has one that another machine holds.
    """
    for name in _ELECTING:
        with suppress(NotFound, Conflict):  # no leader has been elected yet, or another one has been by now
            found = api.get(LEASE, name, _NAMESPACE)
            if lease_rules.is_orphaned(found, started, since=since):
                api.update(lease_rules.given_back(found))
