"""A control plane that does not run as root (feature gate RootlessControlPlane; kubeadm v1.36: util/staticpod/utils_linux.go).

Pure.

There is one row for each component.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.machine import Layout
from kubewright.base.records import dataclass
from kubewright.host.accounts import Ids
from kubewright.host.desired import Accounts, Ownership

READERS: Final = "kubeadm-sa-key-readers"
"""The group of components that sign and verify tokens of service accounts."""

_ETCD, _API_SERVER, _CONTROLLER_MANAGER, _SCHEDULER = "kubeadm-etcd", "kubeadm-kas", "kubeadm-kcm", "kubeadm-ks"
_USERS: Final = (_ETCD, _API_SERVER, _CONTROLLER_MANAGER, _SCHEDULER)
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {**{name: (name,) for name in _USERS}, READERS: (_API_SERVER, _CONTROLLER_MANAGER)}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The facts that determine which files a component must own."""

    layout: Layout
    local_etcd: bool
    external_ca: bool


Files = Callable[[Inputs], tuple[PurePosixPath, ...]]


@dataclass(frozen=True, kw_only=True)
class RootlessComponent:
    """One component: its user, the files that it alone may read, and whether it reads the key of service accounts."""

    user: str
    owns: Files
    reads_key: bool = False
    owns_tree: Files = lambda _: ()
    security: Mapping[str, Any]


_DROPPED: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_BINDS_LOW_PORTS: Final = {"capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}}
"""kube-apiserver's program file has this capability, and does not start without it."""


def _of_api_server(inputs: Inputs) -> tuple[PurePosixPath, ...]:
    keys = ["apiserver", "apiserver-kubelet-client", "front-proxy-client", *(["apiserver-etcd-client"] if inputs.local_etcd else [])]
    return (inputs.layout.pki / "sa.pub", *map(inputs.layout.key, keys))


def _of_controller_manager(inputs: Inputs) -> tuple[PurePosixPath, ...]:
    signing = () if inputs.external_ca else (inputs.layout.key("ca"),)
    return (inputs.layout.kubeconfig("controller-manager"), *signing)


ROWS: Final[Mapping[str, RootlessComponent]] = {
    "kube-apiserver": RootlessComponent(user=_API_SERVER, owns=_of_api_server, reads_key=True, security=_BINDS_LOW_PORTS),
    "kube-controller-manager": RootlessComponent(user=_CONTROLLER_MANAGER, owns=_of_controller_manager, reads_key=True, security=_DROPPED),
    "kube-scheduler": RootlessComponent(user=_SCHEDULER, owns=lambda c: (c.layout.kubeconfig("scheduler"),), security=_DROPPED),
    "etcd": RootlessComponent(
        user=_ETCD,
        owns=lambda c: (c.layout.key("etcd/server"), c.layout.key("etcd/peer")),
        owns_tree=lambda c: (c.layout.etcd_data,),
        security=_DROPPED,
    ),
}


def accounts(layout: Layout) -> Accounts:
    """Return the required users and groups: always those of all components, as in kubeadm."""
    return Accounts(users=_USERS, groups=_GROUPS, etc=layout.etc)


def owners(component: str, inputs: Inputs, ids: Ids) -> Iterator[Ownership]:
    """Yield the files that a component must own."""
    row = ROWS[component]
    user, group = ids.users[row.user], ids.groups[row.user]
    for path in row.owns_tree(inputs):
        yield Ownership(path=path, owner=user, group=group, recursive=True)
    for path in row.owns(inputs):
        yield Ownership(path=path, owner=user, group=group, mode=0o600)
    if row.reads_key:
        yield Ownership(path=inputs.layout.key("sa"), owner=0, group=ids.groups[READERS], mode=0o640)


def hardened(component: str, pod: Mapping[str, Any], ids: Ids) -> dict[str, Any]:
    """Return the static pod of a component with its user and without capabilities."""
    row = ROWS[component]
    spec = pod["spec"]
    first, *others = spec["containers"]
    security = {**spec["securityContext"], "runAsUser": ids.users[row.user], "runAsGroup": ids.groups[row.user]}
    if row.reads_key:
        security["supplementalGroups"] = [ids.groups[READERS]]
    return {**pod, "spec": {**spec, "containers": [{**first, "securityContext": row.security}, *others], "securityContext": security}}
