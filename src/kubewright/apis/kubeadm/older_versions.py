"""kubeadm.k8s.io/v1beta1 to v1beta3, which are only read: their fields, and the replacements of those that v1beta4 lacks or moved.

The kinds decode into the internal form. Two values have another place there: `apiServer.timeoutForControlPlane` is
returned together with the ClusterConfiguration, because it belongs to Init and Join; `discovery.timeout` becomes one of
the timeouts of Join. Two fields of v1beta1 and v1beta2 no longer have a meaning: `dns.type` and `useHyperKubeImage`.

Sources: the types of kubeadm v1.15.12 (v1beta1), v1.22.17 (v1beta2) and v1.36.3 (v1beta3), in
cmd/kubeadm/app/apis/kubeadm. tests/data/older-versions contains the results of migrating old files with these three,
one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.findings import Place
from kubewright.apis.kubeadm import types
from kubewright.apis.kubeadm.node_types import Discovery, JoinConfiguration, JoinControlPlane
from kubewright.apis.kubeadm.types import APIServer, Arg, ClusterConfiguration, InitConfiguration
from kubewright.apis.scalars import SPAN, TEXT, Kind
from kubewright.apis.schema import Map, Pointer, Struct, member, members, struct
from kubewright.base.durations import MINUTE, Duration
from kubewright.base.records import replace, shallow

_WITH_DNS_TYPE: Final = ("v1beta1", "v1beta2")
_DNS: Final = "CoreDNS"
COMPONENT_TIMEOUT: Final = Duration(4 * MINUTE)
"""A `timeoutForControlPlane` of this length means nothing, as does 0: kubeadm itself sets it."""


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


def _struct(version: str, make: type, **changed: Kind) -> Struct[Any]:
    """Return a struct as in a version: without later fields, and with other kinds of some fields."""
    kept = [field for field in members(make) if not field.since or field.since.partition(" ")[0].rstrip(",") <= version]
    return Struct(make, [replace(field, kind=changed.get(field.name, field.kind)) for field in kept])


@functools.cache
def kinds(version: str) -> Mapping[str, Struct[Any]]:
    """Return the kinds of a version by the names of the records that they are decoded into."""
    component = _struct(version, types.ControlPlaneComponent, extraArgs=_ARGUMENTS)
    local = _struct(version, types.LocalEtcd, extraArgs=_ARGUMENTS)
    node = _struct(version, types.NodeRegistration, kubeletExtraArgs=_ARGUMENTS)
    cluster = _struct(
        version,
        ClusterConfiguration,
        etcd=_struct(version, types.Etcd, local=Pointer(local), external=Pointer(_struct(version, types.ExternalEtcd))),
        apiServer=_struct(version, _TimedAPIServer, extraArgs=_ARGUMENTS),
        controllerManager=component,
        scheduler=component,
        dns=_struct(version, types.DNS),
    )
    init = _struct(version, InitConfiguration, nodeRegistration=node)
    plane = Pointer(_struct(version, JoinControlPlane))
    join = _struct(version, JoinConfiguration, nodeRegistration=node, discovery=Struct(_TimedDiscovery), controlPlane=plane)
    return {struct.make.__name__: struct for struct in (init, cluster, join)}


def decode_init(version: str, value: object, at: Place) -> InitConfiguration:
    """Decode an InitConfiguration of a version without its apiVersion and kind."""
    found: InitConfiguration = kinds(version)[InitConfiguration.__name__].decode(value, at)
    return found


def decode_cluster(version: str, value: object, at: Place) -> ClusterConfiguration:
    """Decode a ClusterConfiguration of a version without its apiVersion and kind.

    `component_timeout` returns the timeout in the result.
    """
    current = _without_gone_fields(value, at) if version in _WITH_DNS_TYPE else value
    found: ClusterConfiguration = kinds(version)[ClusterConfiguration.__name__].decode(current, at)
    return found


def _without_gone_fields(value: object, at: Place) -> object:
    """Remove fields that no longer have a meaning, with a warning if their value had an effect."""
    if not isinstance(value, Mapping):
        return value
    kept = dict(value)
    hyperkube = kept.pop("useHyperKubeImage", False)
    if not isinstance(hyperkube, bool) and hyperkube is not None:
        (at / "useHyperKubeImage").wrong_type("a boolean", hyperkube)
    elif hyperkube:
        (at / "useHyperKubeImage").warn_about("ignored: every component has its own image")
    dns = kept.get("dns")
    if isinstance(dns, Mapping) and "type" in dns:
        kept["dns"] = {name: one for name, one in dns.items() if name != "type"}
        if dns["type"] not in {None, "", _DNS}:
            (at / "dns" / "type").invalid(f"{_DNS} is the only DNS add-on since v1.21", dns["type"])
    return kept


def decode_join(version: str, value: object, at: Place) -> JoinConfiguration:
    """Decode a JoinConfiguration of a version without its apiVersion and kind."""
    found: JoinConfiguration = kinds(version)[JoinConfiguration.__name__].decode(value, at)
    discovery = found.discovery
    if not isinstance(discovery, _TimedDiscovery):
        return found
    values = shallow(discovery)
    timeout = values.pop("timeout")
    timeouts = found.timeouts if timeout is None else replace(found.timeouts, discovery=timeout)
    return replace(found, discovery=Discovery(**values), timeouts=timeouts)


def component_timeout(cluster: ClusterConfiguration) -> tuple[ClusterConfiguration, Duration | None]:
    """Separate a decoded ClusterConfiguration from its timeout for components; None if it has no meaningful one."""
    server = cluster.api_server
    if not isinstance(server, _TimedAPIServer):
        return cluster, None
    values = shallow(server)
    timeout = values.pop("timeout_for_control_plane")
    plain = replace(cluster, api_server=APIServer(**values))
    return plain, None if timeout in {Duration(0), COMPONENT_TIMEOUT} else timeout
