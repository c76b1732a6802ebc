"""What a hub would answer, for runs in which nobody is asked: everything real but the authorities, which nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kubewright.apis.node_join_requests import Condition, request_document
from kubewright.base.clock import Clock
from kubewright.base.level import KUBERNETES
from kubewright.base.randomness import Random
from kubewright.enrollment import answers, issuing
from kubewright.enrollment.clusters import LoadedCluster, TenantCluster
from kubewright.enrollment.fields import SymmetricKey
from kubewright.enrollment.node.request import NodeJoin
from kubewright.enrollment.requests import JoinRequest
from kubewright.pki import issuing as signing
from kubewright.pki import keys
from kubewright.pki.keys import Algorithm, FreshKeys
from kubewright.pki.specs import CertificateSpec

_NAME = "stand-in"


def answered(join: NodeJoin, key: SymmetricKey, *, clock: Clock, random: Random) -> Mapping[str, Any]:
    """Return the request with an answer of our own."""
    loaded = _cluster(join, clock=clock, random=random)
    wanted = JoinRequest(endpoint=join.server, sans=join.sans, key=key)
    issued = issuing.issue(loaded, join.node, wanted, key_source=FreshKeys(), started=clock.now(), random=random)
    status = answers.write(issued.answer, key, random=random)
    conditions = [Condition(status="True").document(clock.now())]
    return {**request_document(join.node, {}), "status": {**status, "conditions": conditions}}


def _cluster(join: NodeJoin, *, clock: Clock, random: Random) -> LoadedCluster:
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
        )
    )
