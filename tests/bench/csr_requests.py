"""Requests for certificates as joining kubelets make them, and a watch that knows when each was approved and issued."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from tests.bench.admin import PATIENCE, Admin
from tests.bench.running import BenchmarkFailed

PATH: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
BOOTSTRAPPER: Final = (
    ("Impersonate-User", "system:bootstrap:abcdef"),
    ("Impersonate-Group", "system:bootstrappers"),
    ("Impersonate-Group", "system:bootstrappers:kubeadm:default-node-token"),
    ("Impersonate-Group", "system:authenticated"),
)
"""Who asks: the maker of a request may do so by kubeadm's own binding, which the approver has to find out."""

_CONNECTIONS: Final = 4


def bodies(prefix: str, count: int) -> list[dict[str, Any]]:
    """Return requests of nodes `PREFIX-0` and so on, each with a key of its own: none is known from another."""
    return [_body(f"{prefix}-{number}") for number in range(count)]


def _body(name: str) -> dict[str, Any]:
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    request = x509.CertificateSigningRequestBuilder(subject).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    text = base64.b64encode(request.public_bytes(Encoding.PEM)).decode()
    spec = {"request": text, "signerName": SIGNER, "usages": ["digital signature", "client auth"]}
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}


def create_all(kubeconfig: Path, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Create requests as fast as a few connections can."""

    def some(number: int) -> None:
        client = Admin(kubeconfig, headers=BOOTSTRAPPER)
        for body in wanted[number::_CONNECTIONS]:
            client.post(PATH, body)
        client.close()

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(some, range(_CONNECTIONS)))


def create_evenly(kubeconfig: Path, wanted: Sequence[Mapping[str, Any]], *, rate: float) -> dict[str, float]:
    """Create so many requests a second, and return when each was begun."""
    client = Admin(kubeconfig, headers=BOOTSTRAPPER)
    began: dict[str, float] = {}
    start = time.monotonic()
    for number, body in enumerate(wanted):
        time.sleep(max(0.0, start + number / rate - time.monotonic()))
        began[body["metadata"]["name"]] = time.monotonic()
        client.post(PATH, body)
    client.close()
    return began


def delete_all(kubeconfig: Path) -> None:
    """Delete every request."""
    client = Admin(kubeconfig)
    client.delete(PATH)
    client.close()


class Watched:
    """When requests were seen approved, and seen with their certificates, by a watch in a thread. Only those that begin with `prefix` count."""

    def __init__(self, kubeconfig: Path, *, prefix: str) -> None:
        self._client = Admin(kubeconfig)
        self._prefix = prefix
        self.approved: dict[str, float] = {}
        self.issued: dict[str, float] = {}
        self._news = threading.Condition()
        self._version = self._client.get(f"{PATH}?limit=1")["metadata"]["resourceVersion"]
        threading.Thread(target=self._watch, daemon=True).start()

    def wait(self, what: Mapping[str, float], count: int) -> float:
        """Wait until so many have been seen, and return when the last of them was. Raises BenchmarkFailed after two minutes."""
        with self._news:
            if not self._news.wait_for(lambda: len(what) >= count, PATIENCE):
                raise BenchmarkFailed(f"{len(what)} of {count} requests after {PATIENCE:.0f} s")
            return sorted(what.values())[count - 1]

    def _watch(self) -> None:
        for event in self._client.watch(f"{PATH}?watch=1&resourceVersion={self._version}&timeoutSeconds=900"):
            now, found = time.monotonic(), event["object"]
            name, status = found["metadata"].get("name", ""), found.get("status") or {}
            if not name.startswith(self._prefix):
                continue
            with self._news:
                if status.get("conditions"):
                    self.approved.setdefault(name, now)
                if status.get("certificate"):
                    self.issued.setdefault(name, now)
                self._news.notify_all()
