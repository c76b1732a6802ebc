"""`certs generate-csr` as an operation: keys and certificate signing requests for a CA that is kept elsewhere.

Source: kubeadm v1.36: phases/certs.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.kubeconfig import kubeconfig_document
from kubewright.apis.machine import Addresses
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass, field, replace
from kubewright.lifecycle.certs import configuration
from kubewright.lifecycle.certs.configuration import GivenConfiguration
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.lifecycle.steps.renewal import CertificateLocations
from kubewright.pki import specs, table
from kubewright.pki.keys import PrivateKey
from kubewright.pki.requests import csr
from kubewright.pki.specs import CertificateSpec, KubeconfigSpec
from kubewright.pki.store import KEY_MODE, KUBECONFIG_MODE
from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.machine import TargetMachine

MODE: Final = KEY_MODE
"""The mode of requests: that of keys, although they contain none (kubeadm v1.36)."""
CERTIFICATES: Final = "certificates"
KUBECONFIGS: Final = "kubeconfigs"


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """The options of `certs generate-csr`. `kubeconfig_dir` is '' for the Kubernetes directory."""

    given: GivenConfiguration = GivenConfiguration()
    kubeconfig_dir: str = ""
    only: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RequestContext:
    """One run.

    `made` names the files that each phase has written: base names of certificates, file names of kubeconfigs.
    """

    bound: Bound
    options: RequestOptions
    whole: Configuration
    made: dict[str, list[str]] = field(default_factory=lambda: {CERTIFICATES: [], KUBECONFIGS: []})

    @property
    def addresses(self) -> Addresses:
        """The addresses of this machine."""
        endpoint = self.whole.init.local_api_endpoint
        return Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)

    @property
    def certificates_dir(self) -> PurePosixPath:
        """The directory of keys and requests."""
        return PurePosixPath(self.whole.cluster.certificates_dir)

    @property
    def kubeconfigs_dir(self) -> PurePosixPath:
        """The directory of kubeconfigs and their requests."""
        return PurePosixPath(self.options.kubeconfig_dir or self.bound.host.layout.kubernetes)

    @functools.cached_property
    def places(self) -> CertificateLocations:
        """The locations of written files."""
        return CertificateLocations.of(self.bound.host, certificates=self.certificates_dir, kubeconfigs=self.kubeconfigs_dir)

    @functools.cached_property
    def leaves(self) -> Sequence[CertificateSpec]:
        """The certificates. Those of etcd are requested with an external etcd as well, as kubeadm does."""
        return [_leaf(row, self.whole, self.addresses) for row in table.CERTIFICATES if isinstance(row, table.Leaf)]

    @functools.cached_property
    def clients(self) -> Sequence[KubeconfigSpec]:
        """The kubeconfigs. That of the kubelet names the control plane's endpoint here, as in kubeadm, although init gives it the local one."""
        rows = (replace(row, server=table.Endpoint.CONTROL_PLANE) if row.name == "kubelet" else row for row in table.KUBECONFIGS)
        return [specs.of_kubeconfig(row, self.whole, self.addresses) for row in rows]


def prepare(request: RequestOptions, machine: TargetMachine) -> Prepared[Configuration]:
    """Load the configuration. Raises what `load_init` raises."""
    here = machine.at(machine.layout)
    loaded = configuration.whole_configuration(request.given, detected=here.facts.detected, random=machine.random, layout=here.layout)
    return Prepared(configuration=loaded.configuration, host=here, warnings=loaded.warnings, only=request.only)


def opening(ctx: RequestContext) -> None:
    """Start to generate the keys. Raises CertificateError that names all existing files, before anything is written."""
    leaves = ctx.leaves if CERTIFICATES in ctx.bound.phases else ()
    clients = ctx.clients if KUBECONFIGS in ctx.bound.phases else ()
    _require_free(ctx.places, leaves, clients)
    for wanted in (*leaves, *(one.certificate for one in clients)):
        ctx.bound.keys.reserve(wanted.algorithm)


def certificates(ctx: RequestContext) -> Iterator[Change]:
    """Write a key and a request for every leaf certificate."""
    files = ctx.places.certificates
    for spec in ctx.leaves:
        key = ctx.bound.keys.take(spec.algorithm)
        yield files.write(spec.key_file, key.pem(), mode=KEY_MODE)
        yield files.write(f"{spec.base}.csr", _request(spec, key), mode=MODE)
        ctx.made[CERTIFICATES].append(spec.base)
    _report_files(ctx, CERTIFICATES, ctx.certificates_dir)


def kubeconfigs(ctx: RequestContext) -> Iterator[Change]:
    """Write every kubeconfig, with a key and without a certificate, and its request."""
    files = ctx.places.kubeconfigs
    for one in ctx.clients:
        key = ctx.bound.keys.take(one.certificate.algorithm)
        yield files.write(one.file, yaml.dump(_kubeconfig(one, key)).encode(), mode=KUBECONFIG_MODE)
        yield files.write(f"{one.file}.csr", _request(one.certificate, key), mode=MODE)
        ctx.made[KUBECONFIGS].append(one.file)
    _report_files(ctx, KUBECONFIGS, ctx.kubeconfigs_dir)


def _report_files(ctx: RequestContext, what: str, where: PurePosixPath) -> None:
    ctx.bound.report_step("\n".join([f"generating keys and CSRs in {where}", *(f"  {name}" for name in ctx.made[what])]))


def _leaf(row: table.Leaf, configuration: Configuration, addresses: Addresses) -> CertificateSpec:
    spec = specs.of(row, configuration, addresses)
    assert isinstance(spec, CertificateSpec)  # a leaf's row always has this type of spec
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
    """Return the kubeconfig without its certificate and its CA."""
    user = spec.certificate.common_name
    document = kubeconfig_document(server=spec.server, cluster_name=spec.cluster_name, user=user, credentials=None)
    return {**document, "users": [{"name": user, "user": {"client-key-data": base64.b64encode(key.pem()).decode()}}]}


PHASES: Final[Phases[RequestContext]] = Phases(
    Phase(CERTIFICATES, "Generate keys and requests for certificates", run=certificates),
    Phase(KUBECONFIGS, "Generate kubeconfigs with keys, and their requests", run=kubeconfigs),
)

GENERATE_CSR: Final = Operation(
    name="certs generate-csr",
    phases=PHASES,
    configure=prepare,
    context=lambda request, whole, bound: RequestContext(bound=bound, options=request, whole=whole),
    opening=opening,
    report=lambda result: dict(result.context.made),
)
