"""What kube-controller-manager does for nodes, in the API in memory; and the clock of agents."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from fake_api import FakeAPI

from kubewright.kube.answers import EventType
from kubewright.pki import certificates, keys
from kubewright.pki.keys import Algorithm

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CA = ec.generate_private_key(ec.SECP256R1())


class LoopClock:
    """Wall-clock time that moves with the event loop's."""

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0

    def sleep(self, seconds: float, /) -> None:
        raise AssertionError("an agent never blocks")


class Controllers:
    """Approves and signs every request, and assigns pod ranges, each after this many seconds."""

    def __init__(self, api: FakeAPI, *, lifetime: float = 86400.0, sign_after: float = 0.0, range_after: float = 0.0) -> None:
        self.api = api
        self.clock = LoopClock()
        self.lifetime = lifetime
        self.sign_after: float | None = sign_after
        self.range_after: float | None = range_after
        self.ranges = 0
        api.reactors.append(self._react)

    def _react(self, event: EventType, obj: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        if event is not EventType.ADDED:
            return
        if obj["kind"] == "CertificateSigningRequest" and self.sign_after is not None:
            loop.call_later(self.sign_after, self._sign, obj)
        if obj["kind"] == "Node" and self.range_after is not None:
            loop.call_later(self.range_after, self._give_range, obj["metadata"]["name"])

    def _sign(self, request: dict[str, Any]) -> None:
        certificate = sign(base64.b64decode(request["spec"]["request"]), now=self.clock.now(), lifetime=self.lifetime)
        approved = {**request, "status": {"conditions": [{"type": "Approved", "status": "True"}]}}
        approved = self.api.put(approved)
        self.api.put({**approved, "status": {**approved["status"], "certificate": base64.b64encode(certificate).decode()}})

    def _give_range(self, name: str) -> None:
        node = self.api.objects[("nodes", "", name)]
        self.ranges += 1
        cidr = f"10.128.{self.ranges}.0/24"
        self.api.put({**node, "spec": {**node["spec"], "podCIDR": cidr, "podCIDRs": [cidr]}})


def sign(request: bytes, *, now: datetime, lifetime: float) -> bytes:
    """Sign a request as the cluster's CA would, backdated by five minutes."""
    csr = x509.load_pem_x509_csr(request)
    assert csr.is_signature_valid
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")]),
        subject_name=csr.subject,
        public_key=csr.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(minutes=5),
        not_valid_after=now + timedelta(seconds=lifetime),
    )
    for extension in csr.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return builder.sign(CA, hashes.SHA256()).public_bytes(Encoding.PEM)


def other_pair(*, now: datetime = START) -> certificates.Pair:
    """The key pair of a client that is no node."""
    from kubewright.pki.requests import csr

    key = keys.generate(Algorithm.ECDSA_P256)
    request = csr.request(key, common_name="kubernetes-admin", organizations=("system:masters",))
    return certificates.pair_of(sign(request, now=now, lifetime=86400.0), key.pem(), source="test")


def made_pair(name: str = "node-1", *, now: datetime = START, lifetime: float = 86400.0, group: str = "system:nodes") -> certificates.Pair:
    """A key pair as a node has stored it."""
    from kubewright.pki.requests import csr

    key = keys.generate(Algorithm.ECDSA_P256)
    request = csr.request(key, common_name=f"system:node:{name}", organizations=(group,))
    return certificates.pair_of(sign(request, now=now, lifetime=lifetime), key.pem(), source="test")
