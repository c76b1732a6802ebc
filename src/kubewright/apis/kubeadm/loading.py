"""Converts documents and flags to the configuration of a command: select, decode, default, validate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kubewright.apis import kubelet, kubeproxy
from kubewright.apis.kubeadm import documents as files
from kubewright.apis.kubeadm import node_types, older_versions, types
from kubewright.apis.kubeadm.defaults import NO_ADDRESS, DefaultingMachine, cluster_defaults, init_defaults, join_defaults, reset_defaults
from kubewright.apis.kubeadm.documents import Reading
from kubewright.apis.kubeadm.node_types import JoinConfiguration, ResetConfiguration, UpgradeConfiguration
from kubewright.apis.kubeadm.overrides import InitOverrides, apply_to_cluster, apply_to_init, with_attribute
from kubewright.apis.kubeadm.types import (
    BootstrapToken,
    ClusterConfiguration,
    ComponentConfig,
    Configuration,
    InitConfiguration,
    LocalAPIEndpoint,
    LocalEtcd,
)
from kubewright.apis.kubeadm.validation import validate_cluster, validate_init, validate_join, validate_reset, validate_upgrade
from kubewright.apis.machine import Detected, Layout
from kubewright.base.durations import Duration
from kubewright.base.randomness import Random, SystemRandom
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from kubewright.base.yaml import Document


_NO_FLAGS: Final = InitOverrides()
_KUBEADM_LAYOUT: Final = Layout()
_ANY_ENDPOINT: Final = LocalAPIEndpoint(advertise_address=NO_ADDRESS)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class MachineDefaults:
    """Directories and addresses of this machine, as defaults of all kinds; kubeadm's if not given."""

    layout: Layout = _KUBEADM_LAYOUT
    health_address: str = "127.0.0.1"
    health_port: int = 10248


_KUBEADM_DEFAULTS: Final = MachineDefaults()


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A complete and valid configuration, and its warnings."""

    configuration: Configuration
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class LoadedCluster:
    """The configuration that all machines of a cluster share, complete and valid, and its warnings."""

    cluster: ClusterConfiguration
    kubelet: ComponentConfig
    kube_proxy: ComponentConfig
    warnings: list[str]

    def on_machine(self, init: InitConfiguration) -> Configuration:
        """Return the configuration of one machine of the cluster."""
        return Configuration(init=init, cluster=self.cluster, kubelet=self.kubelet, kube_proxy=self.kube_proxy)


@dataclass(frozen=True, kw_only=True)
class ReadInit:
    """The decoded kinds of `init`, and warnings about the components.

    `component_timeout` is the value in a v1beta3 ClusterConfiguration, which also applies to a Join in the same file.
    """

    configuration: Configuration
    warnings: list[str]
    component_timeout: Duration | None


def load_init(
    documents: Sequence[Document],
    *,
    overrides: InitOverrides = _NO_FLAGS,
    detected: Detected,
    random: Random | None = None,
    strict: bool = True,
    validate_only: bool = False,
    from_file: bool | None = None,
    allow_loopback_advertise: bool = False,
    layout: Layout = _KUBEADM_LAYOUT,
    health_address: str = "127.0.0.1",
    health_port: int = 10248,
) -> Loaded:
    """Return the configuration of `init` from a file's documents and the flags that override them.

    - `random` generates the token if none is given (default: the operating system's).
    - `strict`: unknown and repeated fields and unknown kinds are errors, otherwise warnings. Wrong types are always
      errors.
    - `validate_only`: as `config validate`: sockets are not detected, and rules that kubeadm applies only when `init`
      runs are omitted (an unreachable address, `all` together with names of checks).
    - `from_file`: whether the documents are a file's; by default they are if there are any. A file without documents is
      refused.
    - `allow_loopback_advertise`: a loopback advertise address is used as it is, for local clusters.
    - `layout`, `health_address`, `health_port`: directories and addresses of this machine, as defaults of all kinds;
      kubeadm's if not given.

    Raises DocumentError if the documents cannot be identified (no kind, a kind twice, an old version, neither
    InitConfiguration nor ClusterConfiguration), and ValidationError with all field errors.
    """
    reading, flags_only = _reading_of_init(documents, strict=strict, from_file=from_file)
    machine = DefaultingMachine(
        look=lambda: detected,
        random=random or SystemRandom(),
        allow_loopback=allow_loopback_advertise,
        detect_cri=not validate_only,
    )
    defaults = MachineDefaults(layout=layout, health_address=health_address, health_port=health_port)
    found = read_init(reading, machine, overrides=overrides, flags_only=flags_only, runs=not validate_only, defaults=defaults)
    return Loaded(configuration=found.configuration, warnings=[*reading.finish(), *found.warnings])


def load_cluster(
    documents: Sequence[Document],
    *,
    endpoint: LocalAPIEndpoint = _ANY_ENDPOINT,
    cert_dir: str = "",
    strict: bool = False,
    from_file: bool | None = None,
    layout: Layout = _KUBEADM_LAYOUT,
) -> LoadedCluster:
    """Return the configuration that all machines of a cluster share, from a file's documents or those stored in the cluster.

    It does not depend on a machine. An InitConfiguration among the documents is validated as it is, and its unset
    fields stay unset; an unset version is our own.

    - `endpoint` is the address of an API server if the documents have none: its port completes controlPlaneEndpoint,
      and its address determines the family of kube-proxy's default.
    - `cert_dir` overrides certificatesDir if it is given.
    - The others, and errors, as for `load_init`.
    """
    found = _without_machine(documents, SystemRandom(), endpoint, cert_dir, strict=strict, from_file=from_file, layout=layout)
    made = found.configuration
    return LoadedCluster(cluster=made.cluster, kubelet=made.kubelet, kube_proxy=made.kube_proxy, warnings=found.warnings)


def load_tokens(documents: Sequence[Document], *, random: Random) -> Sequence[BootstrapToken]:
    """Return the bootstrap tokens of a file's InitConfiguration, defaulted: a random one if it has none.

    The whole file must be valid. It does not depend on a machine, as `load_cluster`. Raises as `load_init` does;
    unknown fields are ignored.
    """
    found = _without_machine(documents, random, _ANY_ENDPOINT, "", strict=False, from_file=True, layout=_KUBEADM_LAYOUT)
    return found.configuration.init.bootstrap_tokens


def _without_machine(
    documents: Sequence[Document],
    random: Random,
    endpoint: LocalAPIEndpoint,
    cert_dir: str,
    *,
    strict: bool,
    from_file: bool | None,
    layout: Layout,
) -> Loaded:
    reading, flags_only = _reading_of_init(documents, strict=strict, from_file=from_file)
    init = reading.selection.get(files.INIT)
    overrides = InitOverrides(
        advertise_address=None if files.given(init, "localAPIEndpoint.advertiseAddress") else endpoint.advertise_address,
        bind_port=None if files.given(init, "localAPIEndpoint.bindPort") else endpoint.bind_port,
        cert_dir=cert_dir or None,
    )
    machine = DefaultingMachine(look=None, random=random, detect_cri=False)
    found = read_init(reading, machine, overrides=overrides, flags_only=flags_only, runs=False, defaults=MachineDefaults(layout=layout))
    return Loaded(configuration=found.configuration, warnings=[*reading.finish(), *found.warnings])


def _reading_of_init(documents: Sequence[Document], *, strict: bool, from_file: bool | None) -> tuple[Reading, bool]:
    """Select the kinds of `init`, and return whether only flags apply. Raises DocumentError for a file without them."""
    reading = Reading(selection=files.select(documents, strict=strict), strict=strict)
    flags_only = not (documents if from_file is None else from_file)
    if not flags_only:
        files.require_init(reading.selection, source=documents[0].source if documents else "")
    return reading, flags_only


def read_init(
    reading: Reading,
    machine: DefaultingMachine,
    *,
    overrides: InitOverrides = _NO_FLAGS,
    flags_only: bool = False,
    runs: bool,
    defaults: MachineDefaults = _KUBEADM_DEFAULTS,
) -> ReadInit:
    """Decode, default and validate the kinds of `init`. Errors are recorded in the reading."""
    init = _init(reading, overrides, machine, flags_only=flags_only)
    given, timeout = older_versions.component_timeout(_decoded_cluster(reading))
    if timeout is not None:
        init = with_attribute(init, "timeouts.control_plane_component_health_check", timeout)
    with_directories = _with_directories(given, reading.selection.get(files.CLUSTER), defaults.layout)
    cluster = cluster_defaults(apply_to_cluster(with_directories, overrides), init, reading.place(files.CLUSTER))
    validate_init(init, reading.place(files.INIT), runs=runs, is_complete=machine.is_known)
    validate_cluster(cluster, reading.place(files.CLUSTER))
    kubelet_config, kubelet_warnings = kubelet.defaulted(
        reading.decode(files.KUBELET, kubelet.decode),
        cluster,
        manifests=defaults.layout.manifests,
        health_address=defaults.health_address,
        health_port=defaults.health_port,
    )
    proxy_config, proxy_warnings = kubeproxy.defaulted(
        reading.decode(files.KUBE_PROXY, kubeproxy.decode),
        cluster,
        advertise_address=init.local_api_endpoint.advertise_address,
    )
    return ReadInit(
        configuration=Configuration(init=init, cluster=cluster, kubelet=kubelet_config, kube_proxy=proxy_config),
        warnings=[*kubelet_warnings, *proxy_warnings],
        component_timeout=timeout,
    )


def _decoded_cluster(reading: Reading) -> ClusterConfiguration:
    old = reading.selection.older.get(files.CLUSTER)
    decoder = functools.partial(older_versions.decode_cluster, old) if old else types.CLUSTER.decode
    return reading.decode(files.CLUSTER, decoder) or ClusterConfiguration()


def _init(reading: Reading, overrides: InitOverrides, machine: DefaultingMachine, *, flags_only: bool) -> InitConfiguration:
    old = reading.selection.older.get(files.INIT)
    decoder = functools.partial(older_versions.decode_init, old) if old else types.INIT.decode
    given = reading.decode(files.INIT, decoder) or InitConfiguration()
    return init_defaults(apply_to_init(given, overrides, from_file=not flags_only), machine, reading.place(files.INIT))


def _with_directories(cluster: ClusterConfiguration, document: Document | None, layout: Layout) -> ClusterConfiguration:
    """Set directories that a document leaves unset to those of the layout."""
    if files.given(document, "certificatesDir") is None:
        cluster = with_attribute(cluster, "certificates_dir", str(layout.pki))
    if cluster.etcd.local is None and cluster.etcd.external is None:
        cluster = with_attribute(cluster, "etcd.local", LocalEtcd())
    if cluster.etcd.local is not None and files.given(document, "etcd.local.dataDir") is None:
        cluster = with_attribute(cluster, "etcd.local.data_dir", str(layout.etcd_data))
    return cluster


@dataclass(frozen=True, kw_only=True)
class LoadedKind(Generic[T]):
    """A complete and valid configuration, and its warnings."""

    configuration: T
    warnings: list[str]


def always(_: str, /) -> bool:
    """Treat every path as existing."""
    return True


def load_join(
    documents: Sequence[Document],
    *,
    detected: Detected,
    change: Callable[[JoinConfiguration], JoinConfiguration] = lambda given: given,
    exists: Callable[[str], bool] = always,
    from_file: bool | None = None,
) -> LoadedKind[JoinConfiguration]:
    """Return the configuration of `join`.

    - `change` applies the values of flags to the file's configuration, or to an empty one; defaults are applied
      afterwards.
    - `exists` returns whether a file of this machine exists, for `discovery.file`.
    - The others as for `load_init`.

    Raises DocumentError if the documents cannot be identified or there is no JoinConfiguration, and ValidationError
    with all field errors.
    """
    reading = _reading(documents, files.JOIN, from_file=from_file)
    found = read_join(reading, _machine(detected), change=change, runs=True, exists=exists)
    return LoadedKind(configuration=found, warnings=reading.finish())


def load_reset(
    documents: Sequence[Document],
    *,
    detected: Detected,
    change: Callable[[ResetConfiguration], ResetConfiguration] = lambda given: given,
    from_file: bool | None = None,
) -> LoadedKind[ResetConfiguration]:
    """Return the configuration of `reset`, as `load_join` does."""
    reading = _reading(documents, files.RESET, from_file=from_file)
    found = read_reset(reading, _machine(detected), change=change, runs=True)
    return LoadedKind(configuration=found, warnings=reading.finish())


def load_upgrade(
    documents: Sequence[Document],
    *,
    change: Callable[[UpgradeConfiguration], UpgradeConfiguration] = lambda given: given,
    from_file: bool | None = None,
) -> LoadedKind[UpgradeConfiguration]:
    """Return the configuration of the upgrade commands, as `load_join` does."""
    reading = _reading(documents, files.UPGRADE, from_file=from_file)
    return LoadedKind(configuration=read_upgrade(reading, change=change), warnings=reading.finish())


def read_join(
    reading: Reading,
    machine: DefaultingMachine,
    *,
    change: Callable[[JoinConfiguration], JoinConfiguration] = lambda given: given,
    runs: bool,
    exists: Callable[[str], bool],
) -> JoinConfiguration:
    """Decode, default and validate. Errors are recorded in the reading."""
    old = reading.selection.older.get(files.JOIN)
    decoder = functools.partial(older_versions.decode_join, old) if old else node_types.JOIN.decode
    given = reading.decode(files.JOIN, decoder) or JoinConfiguration()
    found = join_defaults(change(given), machine, reading.place(files.JOIN))
    validate_join(found, reading.place(files.JOIN), runs=runs, exists=exists)
    return found


def read_reset(
    reading: Reading,
    machine: DefaultingMachine,
    *,
    change: Callable[[ResetConfiguration], ResetConfiguration] = lambda given: given,
    runs: bool,
) -> ResetConfiguration:
    """Decode, default and validate. Errors are recorded in the reading."""
    given = reading.decode(files.RESET, node_types.RESET.decode) or ResetConfiguration()
    found = reset_defaults(change(given), machine, reading.place(files.RESET))
    validate_reset(found, reading.place(files.RESET), runs=runs)
    return found


def read_upgrade(
    reading: Reading, *, change: Callable[[UpgradeConfiguration], UpgradeConfiguration] = lambda given: given
) -> UpgradeConfiguration:
    """Decode, default and validate. Errors are recorded in the reading."""
    found = change(reading.decode(files.UPGRADE, node_types.UPGRADE.decode) or UpgradeConfiguration())
    validate_upgrade(found, reading.place(files.UPGRADE))
    return found


def _reading(documents: Sequence[Document], kind: str, *, from_file: bool | None) -> Reading:
    reading = Reading(selection=files.select(documents, strict=False, use=(kind,)), strict=False)
    if documents if from_file is None else from_file:
        files.require(reading.selection, kind, source=documents[0].source if documents else "")
    return reading


def _machine(detected: Detected) -> DefaultingMachine:
    return DefaultingMachine(look=lambda: detected, random=SystemRandom())
