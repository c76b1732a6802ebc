"""Whose turn it is on a machine that becomes the first control plane."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import named
from kubewright.lifecycle.starting import forerunners
from kubewright.lifecycle.starting.forerunners import Forerunners
from kubewright.lifecycle.starting.turns import Turn

_SIGN: Final = "system:kube-controller-manager"
"""One of the first ClusterRoles that an API server makes, a second after it began to serve. The bindings of the components follow in less than
half a second, which is less than a container and the program in it need to start."""


def first_control_plane(cluster: ClusterConfiguration, host: Host, *, connect: Callable[[], KubeAPI]) -> Mapping[str, Turn]:
    """Return the turns: the API server's when etcd's has come, the others' when what they need is made, as soon as the API server answers.

    `connect` makes a client that is obeyed before there are any rights; it may raise while its kubeconfig is not there.
    """
    needs = _Needs(cluster, host, connect)
    turns: dict[str, Turn] = {"kube-scheduler": needs.of_scheduler, "kube-controller-manager": needs.of_controller_manager}
    return turns if cluster.etcd.external is not None else {"kube-apiserver": lambda: _etcd_starts(host), **turns}


def _etcd_starts(host: Host) -> bool:
    """Whether the kubelet has taken up a pod, for which it makes a directory (the first is etcd's), or etcd has begun its work.

    The kubelet looks after the volumes of each pod for 0.3 s before it starts it, and etcd listens sooner than an API server that starts at the
    same time has come to asking for it.
    """
    return bool(host.entries(host.layout.kubelet / "pods")) or host.state(host.layout.etcd_data / "member") is not None


class _Needs:
    """What the components need, made in this order: the rights of both, then what kube-controller-manager would make itself."""

    def __init__(self, cluster: ClusterConfiguration, host: Host, connect: Callable[[], KubeAPI]) -> None:
        self._cluster, self._host, self._connect = cluster, host, connect

    @functools.cached_property
    def _api(self) -> KubeAPI:
        return self._connect()

    @functools.cached_property
    def _rights(self) -> Forerunners | None:
        wanted = forerunners.of_components(self._cluster)
        return Forerunners(wanted) if wanted else None

    @functools.cached_property
    def _accounts(self) -> Forerunners:
        authority = self._host.read(self._host.layout.certificate("ca")) or b""
        return Forerunners(forerunners.of_controllers(self._cluster, authority=authority))

    def of_scheduler(self) -> bool:
        if self._rights is None:
            self._api.get(named("ClusterRole"), _SIGN)
        else:
            self._rights.make(self._api)
        return True

    def of_controller_manager(self) -> bool:
        self._accounts.make(self._api)
        return self.of_scheduler()
