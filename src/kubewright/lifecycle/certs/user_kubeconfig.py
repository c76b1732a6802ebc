"""Kubeconfigs for users: with a new client certificate, or with a token.

Source: kubeadm v1.36: phases/kubeconfig/kubeconfig.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.kubeconfig import BearerToken, kubeconfig_document
from kubewright.apis.machine import Addresses
from kubewright.base.clock import Clock
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.pki import kubeconfigs, specs, store, table
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.store import CertificateStore


@dataclass(frozen=True, kw_only=True)
class KubeconfigUser:
    """The user of a kubeconfig. With a token there is no certificate, and organisations and lifetime are ignored."""

    name: str
    organizations: Sequence[str] = ()
    lifetime: timedelta
    token: str = field(default="", repr=False)


def kubeconfig(
    person: KubeconfigUser,
    configuration: Configuration,
    addresses: Addresses,
    *,
    certificates: CertificateStore,
    clock: Clock,
    random: Random,
) -> dict[str, object]:
    """Return the document, which embeds the whole of ca.crt.

    Raises CertificateError if ca.crt is missing, and without a token also if ca.key is: kubeadm requires the key in
    both cases.
    """
    server = specs.server(table.Endpoint.CONTROL_PLANE, configuration, addresses)
    authority = store.require_authority(certificates, table.authority("ca").base, wanted=f"the kubeconfig of {person.name}")
    if person.token:
        return kubeconfig_document(
            server=server,
            ca_pem=authority.pem,
            cluster_name=configuration.cluster.cluster_name,
            user=person.name,
            credentials=BearerToken(token=person.token),
        )
    spec = specs.client_kubeconfig(
        name=person.name,
        common_name=person.name,
        organizations=tuple(person.organizations),
        server=server,
        cluster=configuration.cluster,
        lifetime=person.lifetime,
    )
    return kubeconfigs.document(spec, authority, kubeconfigs.issue(spec, authority, IssuingSources(clock, random)))
