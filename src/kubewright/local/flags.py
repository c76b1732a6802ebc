"""The flags that a local cluster changes compared with what kubeadm renders.

A single table: `local status` shows it, and the docs are generated from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubewright.apis.machine import Addresses, url
from kubewright.base.records import dataclass


@dataclass(frozen=True, kw_only=True)
class ChangedFlag:
    """One flag of one component, its value on a machine, and the reason for the change.

    `alone` rows are for a cluster with only one control plane, or with several only; None: for both.
    """

    component: str
    flag: str
    value: Callable[[Addresses], str]
    reason: str
    alone: bool | None = None
    own_controllers: bool = False
    """Whether it is only for clusters with kubewright's own controllers."""


def _const(text: str) -> Callable[[Addresses], str]:
    return lambda _: text


CHANGED_FLAGS: Final[tuple[ChangedFlag, ...]] = (
    ChangedFlag(
        component="etcd",
        flag="heartbeat-interval",
        value=_const("10"),
        reason="a single member on this machine elects itself in 0.1 s",
        alone=True,
    ),
    ChangedFlag(component="etcd", flag="election-timeout", value=_const("100"), reason="goes with the heartbeat interval", alone=True),
    ChangedFlag(
        component="etcd",
        flag="strict-reconfig-check",
        value=_const("false"),
        reason="otherwise etcd accepts no new member for five seconds after each one; the health of a majority is checked before",
        alone=False,
    ),
    ChangedFlag(
        component="etcd",
        flag="listen-metrics-urls",
        value=lambda a: url(a.etcd_loopback, a.ports.etcd_metrics),
        reason="every user of this machine reaches loopback: metrics only with a client certificate",
    ),
    ChangedFlag(
        component="kube-apiserver",
        flag="bind-address",
        value=lambda a: a.advertise,
        reason="listens on the machine's loopback address only",
    ),
    ChangedFlag(
        component="kube-apiserver",
        flag="endpoint-reconciler-type",
        value=_const("none"),
        reason="kube-apiserver refuses to publish loopback endpoints of the kubernetes Service",
    ),
    ChangedFlag(
        component="kube-controller-manager",
        flag="kube-api-qps",
        value=_const("1000"),
        reason="with the default of 20 the first service account comes 5 s late",
    ),
    ChangedFlag(component="kube-controller-manager", flag="kube-api-burst", value=_const("2000"), reason="goes with kube-api-qps"),
    ChangedFlag(
        component="kube-controller-manager",
        flag="leader-elect",
        value=_const("false"),
        reason="one control plane: after a kill it would wait out its own lease of 15 s",
        alone=True,
    ),
    ChangedFlag(
        component="kube-controller-manager",
        flag="controllers",
        value=_const("*,-csrapproving,-csrsigning,-csrcleaner,-bootstrapsigner,-tokencleaner"),
        reason="kubewright's own controllers run next to it",
        own_controllers=True,
    ),
    ChangedFlag(component="kube-scheduler", flag="kube-api-qps", value=_const("1000"), reason="as for kube-controller-manager"),
    ChangedFlag(component="kube-scheduler", flag="kube-api-burst", value=_const("2000"), reason="goes with kube-api-qps"),
    ChangedFlag(
        component="kube-scheduler", flag="leader-elect", value=_const("false"), reason="as for kube-controller-manager", alone=True
    ),
)

START_AFTER: Final = {
    "kubewright-controllers": ("kube-apiserver",),
    "kube-controller-manager": ("kube-apiserver",),
    "kube-scheduler": ("kube-apiserver", "kube-controller-manager"),
}
"""The start order of components.

If started before the API server is ready, kube-controller-manager checks it only once a second, and is ready half a
second later than otherwise; the scheduler has nothing to do before there are nodes.
"""


def rows(*, alone: bool, own_controllers: bool = False) -> tuple[ChangedFlag, ...]:
    """Return the rows for a cluster with one control plane, or with several."""
    return tuple(row for row in CHANGED_FLAGS if row.alone in {None, alone} and (own_controllers or not row.own_controllers))


def overrides(component: str, addresses: Addresses, *, alone: bool, own_controllers: bool = False) -> dict[str, str]:
    """Return the changed flags of a component on a machine, by name."""
    found = rows(alone=alone, own_controllers=own_controllers)
    return {row.flag: row.value(addresses) for row in found if row.component == component}
