"""kubeadm.k8s.io/v1beta3, which is read and never written: its fields, and what becomes of those that v1beta4 has elsewhere (spec/kubeadm.md 3.12).

The kinds decode into the internal form. Two values have another home there: `apiServer.timeoutForControlPlane` is handed out beside the
ClusterConfiguration, because it belongs to Init and Join; `discovery.timeout` goes into the timeouts of Join.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.findings import Place
from kubewright.apis.kubeadm import types
from kubewright.apis.kubeadm.node_types import Discovery, JoinConfiguration
from kubewright.apis.kubeadm.types import APIServer, Arg, ClusterConfiguration, InitConfiguration
from kubewright.apis.scalars import SPAN, TEXT, Kind
from kubewright.apis.schema import Map, Pointer, Struct, member, members, struct
from kubewright.base.durations import MINUTE, Duration
from kubewright.base.records import replace, shallow

VERSION: Final = "v1beta3"
COMPONENT_TIMEOUT: Final = Duration(4 * MINUTE)
"""A `timeoutForControlPlane` of this length means nothing, as does 0: it is what kubeadm itself puts there."""


class _Arguments(Kind):
    """Extra arguments as a map; they become a list in the order of their names."""

    holds_others = True
    _map: Final = Map(TEXT)

    def read(self, value: Any, at: Place) -> tuple[Arg, ...]:
        found: Mapping[str, str] = self._map.decode(value, at) or {}
        return tuple(Arg(name=name, value=found[name]) for name in sorted(found))


_ARGUMENTS: Final = _Arguments()
_PERIOD: Final = Pointer(SPAN)


@struct
class _TimedAPIServer(APIServer):
    timeout_for_control_plane: Duration = member(_PERIOD, "wait for a component of the control plane to be healthy", default=Duration(0))


@struct
class _TimedDiscovery(Discovery):
    timeout: Duration | None = member(_PERIOD, "wait for the cluster's information while joining", default=None)


def _older(make: type, **changed: Kind) -> Struct[Any]:
    """Return a struct as v1beta3 had it: without what was added, and with other kinds of some fields."""
    kept = [field for field in members(make) if not field.since]
    return Struct(make, [replace(field, kind=changed.get(field.name, field.kind)) for field in kept])


_COMPONENT: Final = _older(types.ControlPlaneComponent, extraArgs=_ARGUMENTS)
_ETCD: Final = _older(
    types.Etcd,
    local=Pointer(_older(types.LocalEtcd, extraArgs=_ARGUMENTS)),
    external=Pointer(_older(types.ExternalEtcd)),
)
CLUSTER: Final = _older(
    ClusterConfiguration,
    etcd=_ETCD,
    apiServer=_older(_TimedAPIServer, extraArgs=_ARGUMENTS),
    controllerManager=_COMPONENT,
    scheduler=_COMPONENT,
    dns=_older(types.DNS),
)
_NODE_REGISTRATION: Final = _older(types.NodeRegistration, kubeletExtraArgs=_ARGUMENTS)
INIT: Final = _older(InitConfiguration, nodeRegistration=_NODE_REGISTRATION)
JOIN: Final = _older(JoinConfiguration, nodeRegistration=_NODE_REGISTRATION, discovery=Struct(_TimedDiscovery))


def decode_init(value: object, at: Place) -> InitConfiguration:
    """Read an InitConfiguration without its apiVersion and kind."""
    found: InitConfiguration = INIT.decode(value, at)
    return found


def decode_cluster(value: object, at: Place) -> ClusterConfiguration:
    """Read a ClusterConfiguration without its apiVersion and kind; `component_timeout` of the result tells the time-out it holds."""
    found: ClusterConfiguration = CLUSTER.decode(value, at)
    return found


def decode_join(value: object, at: Place) -> JoinConfiguration:
    """Read a JoinConfiguration without its apiVersion and kind."""
    found: JoinConfiguration = JOIN.decode(value, at)
    discovery = found.discovery
    if not isinstance(discovery, _TimedDiscovery):
        return found
    values = shallow(discovery)
    timeout = values.pop("timeout")
    timeouts = found.timeouts if timeout is None else replace(found.timeouts, discovery=timeout)
    return replace(found, discovery=Discovery(**values), timeouts=timeouts)


def component_timeout(cluster: ClusterConfiguration) -> tuple[ClusterConfiguration, Duration | None]:
    """Part a decoded ClusterConfiguration from its time-out for components; None where it holds none that means anything."""
    server = cluster.api_server
    if not isinstance(server, _TimedAPIServer):
        return cluster, None
    values = shallow(server)
    timeout = values.pop("timeout_for_control_plane")
    plain = replace(cluster, api_server=APIServer(**values))
    return plain, None if timeout in {Duration(0), COMPONENT_TIMEOUT} else timeout
