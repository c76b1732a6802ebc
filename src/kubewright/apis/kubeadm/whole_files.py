"""All kinds of a configuration file at once, as `config validate` and `config migrate` read it (kubeadm v1.36: util/config/common.go).

kubeadm reads kind by kind and stops at the first invalid one; here all errors are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis import kubelet, kubeproxy
from kubewright.apis.kubeadm import documents as files
from kubewright.apis.kubeadm.defaults import DefaultingMachine
from kubewright.apis.kubeadm.documents import Reading
from kubewright.apis.kubeadm.loading import read_init, read_join, read_reset, read_upgrade
from kubewright.apis.kubeadm.overrides import with_attribute
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Detected
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.node_types import JoinConfiguration, ResetConfiguration, UpgradeConfiguration
    from kubewright.base.yaml import Document

_USE: Final = (*files.KINDS, files.KUBELET, files.KUBE_PROXY)
_COMPONENTS: Final[tuple[tuple[str, Callable[..., Any]], ...]] = ((files.KUBELET, kubelet.decode), (files.KUBE_PROXY, kubeproxy.decode))


@dataclass(frozen=True, kw_only=True)
class WholeFile:
    """The kinds of a file, complete and valid; None for missing ones."""

    configuration: Configuration | None
    join: JoinConfiguration | None
    reset: ResetConfiguration | None
    upgrade: UpgradeConfiguration | None
    warnings: list[str]

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield v1beta4 documents in kubeadm's order: Init, Cluster, Join, Reset, Upgrade.

        They contain tokens: never log them.
        """
        from kubewright.apis.kubeadm import codec  # `config validate` writes nothing

        if self.configuration is not None:
            yield codec.init_document(self.configuration.init)
            yield codec.cluster_document(self.configuration.cluster)
        if self.join is not None:
            yield codec.join_document(self.join)
        if self.reset is not None:
            yield codec.reset_document(self.reset)
        if self.upgrade is not None:
            yield codec.upgrade_document(self.upgrade)


def load_whole(
    documents: Sequence[Document],
    *,
    detected: Detected | Callable[[], Detected],
    exists: Callable[[str], bool] = lambda _: True,
    detect_runtime: bool = False,
    allow_deprecated: bool = False,
) -> WholeFile:
    """Decode, default and validate every kind of a file.

    `detected` may be a function, which is called only if the file leaves values of the machine unset.
    `detect_runtime`: unset sockets are detected on this machine (migrate), otherwise they are containerd's (validate).
    `allow_deprecated`: no warning about v1beta3. `exists` as for `load_join`. Rules that matter only when a command
    runs are omitted, as in kubeadm.

    Raises DocumentError and ValidationError as `load_init` does; unknown and repeated fields, and unknown kinds, are
    errors.
    """
    reading = Reading(selection=files.select(documents, strict=True, use=_USE, allow_deprecated=allow_deprecated))
    machine = DefaultingMachine(look=detected if callable(detected) else lambda: detected, random=SystemRandom(), detect_cri=detect_runtime)
    there = reading.selection.get
    init = read_init(reading, machine, runs=False) if there(files.INIT) or there(files.CLUSTER) else None
    join, reset, upgrade = _of_nodes(reading, machine, exists)
    if join is not None and init is not None and init.component_timeout is not None:
        join = with_attribute(join, "timeouts.control_plane_component_health_check", init.component_timeout)
    return WholeFile(
        configuration=init.configuration if init else None,
        join=join,
        reset=reset,
        upgrade=upgrade,
        warnings=[*([] if init else _component_warnings(reading.selection)), *reading.finish(), *(init.warnings if init else [])],
    )


def _of_nodes(
    reading: Reading, machine: DefaultingMachine, exists: Callable[[str], bool]
) -> tuple[JoinConfiguration | None, ResetConfiguration | None, UpgradeConfiguration | None]:
    """Decode the kinds that few files contain; their modules are loaded only then."""
    there = reading.selection.get
    if not any(there(kind) for kind in (files.JOIN, files.RESET, files.UPGRADE)):
        return None, None, None
    return (
        read_join(reading, machine, runs=False, exists=exists) if there(files.JOIN) else None,
        read_reset(reading, machine, runs=False) if there(files.RESET) else None,
        read_upgrade(reading) if there(files.UPGRADE) else None,
    )


def _component_warnings(selection: files.Selection) -> list[str]:
    """Return warnings about documents of components without an Init- or ClusterConfiguration. kubeadm ignores them, so they are not errors."""
    reading = Reading(selection=selection)
    for kind, decoder in _COMPONENTS:
        reading.decode(kind, decoder)
    found = reading.findings.values()
    return [*(str(error) for one in found for error in (*one.errors, *one.surplus)), *(text for one in found for text in one.warnings)]
