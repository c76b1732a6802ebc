"""kubeadm.k8s.io/v1beta3, which is read and never written: its fields, and what becomes of those that v1beta4 has elsewhere (spec/kubeadm.md 3.12).

The kinds decode into the internal form. Two values have another home there: `apiServer.timeoutForControlPlane` is handed out beside the
ClusterConfiguration, because it belongs to Init and Join; `discovery.timeout` goes into the timeouts of Join.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.findings import Place
from kubewright.apis.kubeadm import fields, node_fields, types
from kubewright.apis.kubeadm.node_types import Discovery, JoinConfiguration
from kubewright.apis.kubeadm.types import APIServer, Arg, ClusterConfiguration, InitConfiguration
from kubewright.apis.scalars import SPAN, TEXT, Kind
from kubewright.apis.schema import Field, List, Map, Pointer, Struct
from kubewright.base.durations import MINUTE, Duration
from kubewright.base.records import dataclass, replace, shallow

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


@dataclass(frozen=True, kw_only=True)
class _TimedAPIServer(APIServer):
    timeout_for_control_plane: Duration = Duration(0)


@dataclass(frozen=True, kw_only=True)
class _TimedDiscovery(Discovery):
    timeout: Duration | None = None


_ARGUMENTS: Final = _Arguments()
_PERIOD: Final = Pointer(SPAN)
_NEW: Final[Mapping[type, set[str]]] = {
    types.ClusterConfiguration: {"proxy", "encryptionAlgorithm", "certificateValidityPeriod", "caCertificateValidityPeriod"},
    types.ControlPlaneComponent: {"extraEnvs"},
    types.LocalEtcd: {"extraEnvs"},
    types.ExternalEtcd: {"httpEndpoints"},
    types.DNS: {"disabled"},
    types.NodeRegistration: {"imagePullSerial"},
    types.InitConfiguration: {"dryRun", "timeouts"},
    JoinConfiguration: {"dryRun", "timeouts"},
}
"""What v1beta4 added, by the struct that holds it."""


def _older(struct: Struct[Any], **changed: Kind) -> Struct[Any]:
    """Return a struct as v1beta3 had it: without what was added, and with other kinds of some fields."""
    added = _NEW.get(struct.make, set())
    kept = (field for field in struct.fields if field.name not in added)
    return Struct(struct.make, [Field(field.name, changed.get(field.name, field.kind), field.attribute, field.keep) for field in kept])


_COMPONENT: Final = _older(fields.CONTROL_PLANE_COMPONENT, extraArgs=_ARGUMENTS)
_API_SERVER: Final = Struct(
    _TimedAPIServer,
    (*_COMPONENT.fields, Field("certSANs", List(TEXT), "cert_sans"), Field("timeoutForControlPlane", _PERIOD)),
)
_ETCD: Final = _older(
    fields.ETCD,
    local=Pointer(_older(fields.LOCAL_ETCD, extraArgs=_ARGUMENTS)),
    external=Pointer(_older(fields.EXTERNAL_ETCD)),
)
CLUSTER: Final = _older(
    fields.CLUSTER,
    etcd=_ETCD,
    apiServer=_API_SERVER,
    controllerManager=_COMPONENT,
    scheduler=_COMPONENT,
    dns=_older(fields.DNS),
)
_NODE_REGISTRATION: Final = _older(fields.NODE_REGISTRATION, kubeletExtraArgs=_ARGUMENTS)
INIT: Final = _older(fields.INIT, nodeRegistration=_NODE_REGISTRATION)
_DISCOVERY: Final = Struct(_TimedDiscovery, (*node_fields.DISCOVERY_FIELDS, Field("timeout", _PERIOD)))
JOIN: Final = _older(node_fields.JOIN, nodeRegistration=_NODE_REGISTRATION, discovery=_DISCOVERY)


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
