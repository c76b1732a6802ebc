"""The kubeadm configuration of a local cluster: the user's documents, with the paths and addresses of its machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubewright.apis.kubeadm import serving_certificates, versions
from kubewright.apis.kubeadm.loading import Loaded, load_init
from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Detected, Layout
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.randomness import Random
from kubewright.base.records import replace
from kubewright.base.yaml import Document
from kubewright.local.record import LocalMachineRecord
from kubewright.local.user_documents import SOURCE, documents_of, field

POD_SUBNET: Final = "10.128.0.0/9"
"""Enough for 32,768 nodes with a /24 each, outside the default service range.

Without one, kube-controller-manager gives nodes no CIDR.
"""

KEY_ALGORITHM: Final = "ECDSA-P256"
"""Ten RSA keys cost 0.7 s on two cores, these a few milliseconds."""


def load(
    config: str,
    *,
    machine: LocalMachineRecord,
    layout: Layout,
    version: str,
    detected: Detected,
    random: Random,
    strict: bool = False,
) -> Loaded:
    """Load a local cluster's configuration. With `strict` the cluster signs the certificates of kubelets.

    Raises ValidationError with all fields that contain other paths and addresses than the machine's own, and with
    everything that `load_init` refuses.
    """
    documents = documents_of(config)
    _refuse_places(documents, machine, layout)
    asked = InitOverrides(
        kubernetes_version=version if _is_version(field(documents, "ClusterConfiguration", "kubernetesVersion")) else None,
        node_name=machine.name,
        advertise_address=machine.address,
        bind_port=machine.ports["api_server"],
        cert_dir=str(layout.pki),
        etcd_data_dir=str(layout.etcd_data),
        pod_network_cidr=None if field(documents, "ClusterConfiguration", "networking", "podSubnet") else POD_SUBNET,
    )
    loaded = load_init(
        documents,
        overrides=asked,
        detected=detected,
        random=random,
        allow_loopback_advertise=True,
        layout=layout,
        health_address=machine.address,
        health_port=machine.ports["kubelet_health"],
    )
    found = _local(loaded.configuration, documents)
    return replace(loaded, configuration=serving_certificates.strict(found, authority=layout.certificate("ca")) if strict else found)


def _local(configuration: Configuration, documents: Sequence[Document]) -> Configuration:
    """Choose fast keys unless the document chooses, and keep only its explicit bootstrap tokens: `up` creates its own for a join."""
    cluster, init = configuration.cluster, configuration.init
    if field(documents, "ClusterConfiguration", "encryptionAlgorithm") is None:
        cluster = replace(cluster, encryption_algorithm=KEY_ALGORITHM)
    if field(documents, "InitConfiguration", "bootstrapTokens") is None:
        init = replace(init, bootstrap_tokens=())
    return replace(configuration, cluster=cluster, init=init)


def _refuse_places(documents: Sequence[Document], machine: LocalMachineRecord, layout: Layout) -> None:
    places = (
        ("ClusterConfiguration", ("certificatesDir",), str(layout.pki)),
        ("ClusterConfiguration", ("etcd", "local", "dataDir"), str(layout.etcd_data)),
        ("InitConfiguration", ("localAPIEndpoint", "advertiseAddress"), machine.address),
        ("InitConfiguration", ("localAPIEndpoint", "bindPort"), machine.ports["api_server"]),
        ("InitConfiguration", ("nodeRegistration", "name"), machine.name),
        ("InitConfiguration", ("nodeRegistration", "criSocket"), None),
        ("ClusterConfiguration", ("etcd", "external"), None),
    )
    errors = [
        _forbidden(documents, kind, path, found, local)
        for kind, path, local in places
        if not _fits(found := field(documents, kind, *path), local)
    ]
    if errors:
        raise ValidationError(
            f"{SOURCE} sets paths or addresses that a local cluster chooses itself", errors, remedy="leave these fields out of the document"
        )


def _is_version(named: object) -> bool:
    """Return whether the version in a document is valid or unset. Other text is refused when it is decoded."""
    try:
        versions.resolve(named if isinstance(named, str) else "")
    except ValueError:
        return False
    return True


def _fits(found: object, local: object) -> bool:
    return found is None or found == "" or (local is not None and found == local)


def _forbidden(documents: Sequence[Document], kind: str, path: Sequence[str], found: object, local: object) -> FieldError:
    document = next(one for one in documents if isinstance(one.value, Mapping) and one.value.get("kind") == kind)
    text = ".".join(path)
    reason = f"on this machine it is {local}" if local is not None else "a local cluster has none"
    return FieldError(path=FieldPath(text), type=FieldErrorType.FORBIDDEN, reason=reason, value=found, source=document.where(text))
