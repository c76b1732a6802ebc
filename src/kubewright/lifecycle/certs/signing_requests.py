"""Keys and certificate signing requests for an authority that is kept elsewhere (kubeadm v1.36: phases/certs)."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.kubeconfig import kubeconfig_document
from kubewright.apis.machine import Addresses
from kubewright.base import yaml
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.lifecycle.steps.renewal import CertificateLocations
from kubewright.pki import csr, specs, table
from kubewright.pki.keys import KeyPool, PrivateKey
from kubewright.pki.specs import CertificateSpec, KubeconfigSpec
from kubewright.pki.store import KEY_MODE, KUBECONFIG_MODE

MODE = KEY_MODE
"""Of requests: as of keys, though they hold none (kubeadm v1.36)."""


@dataclass(frozen=True, kw_only=True)
class GeneratedRequests:
    """What was written: base names below the certificate directory, file names below the Kubernetes directory."""

    certificates: Sequence[str]
    kubeconfigs: Sequence[str]


def generate(configuration: Configuration, addresses: Addresses, *, places: CertificateLocations) -> GeneratedRequests:
    """Make a key and a request for every leaf, and for every kubeconfig one with a key and no certificate, and its request.

    Those of etcd are made with an external etcd as well, as kubeadm does.
    Raises CertificateError, naming all of them and before anything is written, where any of the files exists.
    """
    leaves = [_leaf(row, configuration, addresses) for row in table.CERTIFICATES if isinstance(row, table.Leaf)]
    clients = specs.kubeconfigs_for(configuration, addresses)
    _require_free(places, leaves, clients)
    with KeyPool() as keys:
        for wanted in (*leaves, *(one.certificate for one in clients)):
            keys.reserve(wanted.algorithm)
        for spec in leaves:
            key = keys.take(spec.algorithm)
            places.certificates.write(spec.key_file, key.pem(), mode=KEY_MODE)
            places.certificates.write(f"{spec.base}.csr", _request(spec, key), mode=MODE)
        for one in clients:
            key = keys.take(one.certificate.algorithm)
            places.kubeconfigs.write(one.file, yaml.dump(_kubeconfig(one, key)).encode(), mode=KUBECONFIG_MODE)
            places.kubeconfigs.write(f"{one.file}.csr", _request(one.certificate, key), mode=MODE)
    return GeneratedRequests(certificates=[spec.base for spec in leaves], kubeconfigs=[one.file for one in clients])


def _leaf(row: table.Leaf, configuration: Configuration, addresses: Addresses) -> CertificateSpec:
    spec = specs.of(row, configuration, addresses)
    assert isinstance(spec, CertificateSpec)  # a leaf's row gives nothing else
    return spec


def _require_free(places: CertificateLocations, leaves: Sequence[CertificateSpec], clients: Sequence[KubeconfigSpec]) -> None:
    taken = [name for spec in leaves for name in (spec.key_file, f"{spec.base}.csr") if places.certificates.read(name) is not None]
    taken += [name for one in clients for name in (one.file, f"{one.file}.csr") if places.kubeconfigs.read(name) is not None]
    if taken:
        raise CertificateError(
            "keys or requests exist already, and none is overwritten",
            detail="\n".join(taken),
            remedy="choose empty directories with --cert-dir and --kubeconfig-dir, or move these files away",
        )


def _request(spec: CertificateSpec, key: PrivateKey) -> bytes:
    return csr.request(key, common_name=spec.common_name, organizations=spec.organizations, names=spec.names, plain_digest=True)


def _kubeconfig(spec: KubeconfigSpec, key: PrivateKey) -> dict[str, object]:
    """Make the kubeconfig that waits for its certificate and its CA."""
    user = spec.certificate.common_name
    document = kubeconfig_document(server=spec.server, cluster_name=spec.cluster_name, user=user, credentials=None)
    return {**document, "users": [{"name": user, "user": {"client-key-data": base64.b64encode(key.pem()).decode()}}]}
