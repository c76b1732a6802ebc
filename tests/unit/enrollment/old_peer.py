"""A second implementation of oneinfra's join format, for tests: both ends, written from the protocol's description without our code."""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

RESULTS = (
    "kubernetesVersion",
    "kubeConfig",
    "kubeletConfig",
    "kubeletServerCertificate",
    "kubeletServerPrivateKey",
    "kubeletClientCACertificate",
)


def to_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode().strip("=")


def to_bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (4 - len(text) % 4))


def oaep(digest=hashes.SHA256, mgf=hashes.SHA256):
    return padding.OAEP(padding.MGF1(mgf()), digest(), None)


def lock(text: str, key: bytes, nonce: bytes | None = None) -> str:
    nonce = nonce or os.urandom(12)
    return to_text(nonce + AESGCM(key).encrypt(nonce, text.encode(), None))


def unlock(text: str, key: bytes) -> str:
    raw = to_bytes(text)
    return AESGCM(key).decrypt(raw[:12], raw[12:], None).decode()


@dataclass
class OldNode:
    """A node of oneinfra: what it sends, and how it reads an answer."""

    name: str
    endpoint: str
    sans: tuple[str, ...] = ()
    key: bytes = field(default_factory=lambda: secrets.token_hex(16).encode())

    def request(self, public_pem: str) -> dict:
        public = serialization.load_pem_public_key(public_pem.encode())
        spec = {
            "symmetricKey": to_text(public.encrypt(self.key, oaep())),
            "apiServerEndpoint": lock(self.endpoint, self.key),
            "containerRuntimeEndpoint": lock("unix:///run/containerd/containerd.sock", self.key),
            "imageServiceEndpoint": lock("unix:///run/containerd/containerd.sock", self.key),
        }
        if self.sans:
            spec["extraSANs"] = [lock(san, self.key) for san in self.sans]
        head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest", "metadata": {"name": self.name}}
        return {**head, "spec": spec}

    def issued(self, found: dict) -> bool:
        return any(one["type"] == "Issued" and one["status"] == "True" for one in (found.get("status") or {}).get("conditions") or [])

    def results(self, found: dict) -> dict[str, str]:
        return {name: unlock(found["status"][name], self.key) for name in RESULTS}


@dataclass
class OldHub:
    """The keys of a hub of oneinfra, and its answers."""

    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    @property
    def public_pem(self) -> str:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()

    @property
    def private_pem(self) -> bytes:
        form = serialization.PrivateFormat.TraditionalOpenSSL
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())

    def read(self, request: dict) -> dict:
        spec = request["spec"]
        key = self.key.decrypt(to_bytes(spec["symmetricKey"]), oaep())
        texts = {name: unlock(spec[name], key) for name in spec if name.endswith("Endpoint")}
        return {**texts, "extraSANs": [unlock(san, key) for san in spec.get("extraSANs", [])], "key": key}

    def answer(self, request: dict, results: dict[str, str]) -> dict:
        key = self.read(request)["key"]
        moment = "2026-01-02T03:04:05Z"
        condition = {"type": "Issued", "status": "True", "lastTransitionTime": moment, "lastSetTime": moment, "reason": "", "message": ""}
        status = {name: lock(text, key) for name, text in results.items()}
        return json.loads(json.dumps({**request, "status": {**status, "conditions": [condition]}}))
