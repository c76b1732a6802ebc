"""The rules for taking and writing a Lease: the pure part of leader election and of locks.

client-go: tools/leaderelection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from kubewright.base.clock import rfc3339_micro
from kubewright.base.records import dataclass
from kubewright.kube.core import Object
from kubewright.kube.resources import LEASE

HOLDER: Final = "holderIdentity"
Spec = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LeaseTerms:
    """A lease, and for how many seconds it is held after each renewal."""

    name: str
    seconds: float
    namespace: str = "kube-system"


class LeaseWatch:
    """When a lease last changed, by our own clock, because the holder's may be wrong."""

    def __init__(self, terms: LeaseTerms) -> None:
        self._terms = terms
        self._seen: tuple[object, object] | None = None
        self._seen_at = 0.0

    def is_free(self, spec: Spec, *, identity: str, now: float) -> bool:
        """Whether a lease in this state may be taken: it has no other holder, or has expired."""
        seen = (spec.get(HOLDER), spec.get("renewTime"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        holder = str(spec.get(HOLDER) or "")
        return holder in {"", identity} or now >= self._seen_at + float(spec.get("leaseDurationSeconds") or self._terms.seconds)


def taken(found: Object, terms: LeaseTerms, *, identity: str, now: datetime) -> Object:
    """Return a lease as its holder writes it to take or renew it. `found` is empty if the lease does not exist."""
    old = found.get("spec") or {}
    renews, time = old.get(HOLDER) == identity, rfc3339_micro(now)
    spec = {
        **old,
        HOLDER: identity,
        "leaseDurationSeconds": int(terms.seconds),
        "acquireTime": old.get("acquireTime") if renews else time,
        "renewTime": time,
        "leaseTransitions": int(old.get("leaseTransitions") or 0) + (bool(old) and not renews),
    }
    metadata = found.get("metadata") or {"name": terms.name, "namespace": terms.namespace}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}


def given_back(found: Object) -> Object:
    """Return a lease as its holder writes it to release it."""
    return {**found, "spec": {**found["spec"], HOLDER: "", "leaseDurationSeconds": 1}}


def is_orphaned(found: Object, machines: Collection[str], *, since: float) -> bool:
    """Return whether a lease was last renewed before a time by a process of one of these machines, all of which have ended since.

    The time is in seconds since 1970. The identity of a leader of kube-controller-manager or kube-scheduler is
    `MACHINE_UUID` (kubernetes v1.36: cmd/kube-controller-manager/app/controllermanager.go).
    """
    spec = found.get("spec") or {}
    return str(spec.get(HOLDER) or "").rpartition("_")[0] in machines and moment(spec, "renewTime") < since


def moment(spec: Spec, field: str) -> float:
    """Return a time of a lease in seconds since 1970; 0 if it has none."""
    try:
        return datetime.fromisoformat(str(spec.get(field))).timestamp()
    except ValueError:
        return 0.0
