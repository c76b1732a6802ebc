"""A stand-in for the hub's answer in plans: everything is real except the CAs, which no API server trusts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kubewright.apis.node_join_requests import Condition, request_document
from kubewright.base.clock import Clock
from kubewright.base.level import KUBERNETES
from kubewright.base.randomness import Random
from kubewright.enrollment.hub import issuing
from kubewright.enrollment.node.request import NodeJoin
from kubewright.enrollment.protocol import answers
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.clusters import LoadedCluster, TenantCluster
from kubewright.enrollment.vpn import leases
from kubewright.enrollment.vpn.network import VPN
from kubewright.pki import issuing as signing
from kubewright.pki import keys, wireguard
from kubewright.pki.keys import Algorithm, FreshKeys
from kubewright.pki.specs import CertificateSpec

_NAME = "stand-in"
_ENDPOINT = "hub.invalid:51820"


def answered(join: NodeJoin, wanted: JoinRequest, networks: tuple[str, ...], *, clock: Clock, random: Random) -> Mapping[str, Any]:
    """Return the request with an answer of our own; `networks` are those of the VPN, in which the node gets an unused address."""
    loaded = _cluster(join, networks, clock=clock, random=random)
    vpn = loaded.cluster.vpn
    lease = leases.pick(vpn.pools, join.node, kept=(), owners=lambda _: {}) if vpn is not None else ()
    issued = issuing.issue(loaded, join.node, wanted, lease=lease, key_source=FreshKeys(), started=clock.now(), random=random)
    status = answers.write(issued.answer, wanted.key, random=random)
    conditions = [Condition(status="True").document(clock.now())]
    return {**request_document(join.node, {}), "status": {**status, "conditions": conditions}}


def _cluster(join: NodeJoin, networks: tuple[str, ...], *, clock: Clock, random: Random) -> LoadedCluster:
    authority_key = keys.generate(Algorithm.ECDSA_P256)
    spec = CertificateSpec(name=_NAME, base=_NAME, common_name=_NAME, lifetime=timedelta(days=1), algorithm=Algorithm.ECDSA_P256)
    authority, key = signing.self_signed(spec, authority_key, started=clock.now(), random=random).decode(), authority_key.pem().decode()
    return LoadedCluster(
        TenantCluster(
            name=_NAME,
            server=join.server,
            server_ca=join.ca_pem.decode(),
            kubernetes_version=KUBERNETES,
            client_ca=authority,
            client_key=key,
            serving_ca=authority,
            serving_key=key,
            kubelet_client_ca=authority,
            kubeconfig="",
            join_key=keys.generate(Algorithm.RSA_2048).pem().decode(),
            vpn=VPN(networks=networks, endpoint=_ENDPOINT, interface=_NAME) if networks else None,
            vpn_key=wireguard.new_private_key(random) if networks else "",
        )
    )
