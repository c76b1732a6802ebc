"""Faults while the controllers work with a real API server: each used by a test, and by `make soak` with larger numbers."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cryptography import x509
from local_kit import Bench, eventually
from relays import Relay
from replicas_kit import IN_FLIGHT, Replica, Replicas, body, decisions, issued, require_once

from kubewright.base.errors import APIError, Conflict, KubewrightError
from kubewright.base.records import replace
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Impersonation
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))

from controllers_kit import authority_files, request

PATIENT = ("--leader-elect-lease-duration=90s", "--leader-elect-renew-deadline=60s", "--secure-port=0")
"""For replicas that must survive a short outage of the API server."""


@contextlib.contextmanager
def relayed(replicas: Replicas) -> Iterator[tuple[Relay, Replica]]:
    """Start a replica that reaches the API server through a relay."""
    text = replicas.kubeconfig.read_text()
    [server] = [line.split()[1] for line in text.splitlines() if line.strip().startswith("server:")]
    relay = Relay(server)
    place = replicas.cluster.root / "relayed.conf"
    place.touch(mode=0o600)
    place.write_text(text.replace(f"server: {server}", f"server: https://127.0.0.1:{relay.port}\n    tls-server-name: {relay.host}"))
    try:
        yield relay, replicas.start(f"--kubeconfig={place}", *PATIENT)
    finally:
        relay.open()
        replicas.stop()  # while it can still release its lease
        relay.close()


def cut_off_and_restarted(cluster: Bench, api: KubeClient, replicas: Replicas, *, count: int, name: str = "cut") -> None:
    """Cut the watches.

    Then kill the API server while the replica cannot reach it, so that the replica's resource version is too old
    (410).
    """
    names = [f"{name}-{number:03d}" for number in range(count)]
    third = count // 3
    with relayed(replicas) as (relay, replica):
        eventually(lambda: replicas.leader(api) is replica, "the replica to lead")
        for one in names[:third]:
            api.create(body(one))
        eventually(lambda: replica.signed(name) > third // 4, "the work to begin")
        relay.cut()
        for one in names[third : 2 * third]:
            api.create(body(one))
        eventually(lambda: replica.signed(name) > third, "the work to go on")
        relay.cut(shut=True)
        for one in names[2 * third :]:
            api.create(body(one))
        api_server = cluster.components()["kube-apiserver"]["pid"]
        os.kill(api_server, signal.SIGKILL)
        eventually(lambda: _answers(api) and cluster.components()["kube-apiserver"]["pid"] != api_server, "the API server to come back")
        before = relay.let_in
        relay.open()
        eventually(lambda: issued(api) >= set(names), "every request to be signed")
        assert relay.let_in > before
        assert replica.process.poll() is None
    require_once(cluster, names, lost=2 * IN_FLIGHT)


def killed_in_flight(cluster: Bench, api: KubeClient, replicas: Replicas, *, count: int, name: str = "restart") -> None:
    """Kill the API server while the replica works: no request is lost, and none is decided twice."""
    names = [f"{name}-{number:03d}" for number in range(count)]
    replica = replicas.start(*PATIENT)
    eventually(lambda: replicas.leader(api) is replica, "the replica to lead")
    sender = threading.Thread(target=lambda: [_insisted(lambda one=one: api.create(body(one))) for one in names])
    sender.start()
    eventually(lambda: replica.signed(name) > count // 4, "the work to begin")
    os.kill(cluster.components()["kube-apiserver"]["pid"], signal.SIGKILL)
    sender.join()
    eventually(lambda: _answers(api) and issued(api) >= set(names), "every request to be signed")
    require_once(cluster, names, lost=IN_FLIGHT)
    assert replica.process.poll() is None


def written_to_by_others(cluster: Bench, api: KubeClient, replicas: Replicas, *, count: int, name: str = "conflict") -> None:
    """Change requests all the time while the CA is replaced: the first half of its files, then the certificate, then its key."""
    names = [f"{name}-{number:03d}" for number in range(count)]
    pki = cluster.root / f"{name}-pki"
    shutil.copytree(replicas.kubeconfig.parent / "pki", pki)
    old, new = (pki / "ca.crt").read_bytes(), authority_files(name="new")
    replica = replicas.start(f"--cluster-signing-cert-file={pki / 'ca.crt'}", f"--cluster-signing-key-file={pki / 'ca.key'}", *PATIENT)
    eventually(lambda: replicas.leader(api) is replica, "the replica to lead")
    with _disturbed(cluster, names):
        for number, one in enumerate(names):
            if number == count // 4:
                (pki / "ca.crt").write_bytes(new[0][: len(new[0]) // 2])
            if number == count // 2:
                (pki / "ca.crt").write_bytes(new[0])
            if number == 3 * count // 4:
                eventually(lambda: issued(api) >= set(names[: count // 4]), "the former authority to sign what was sent before")
                (pki / "ca.key").write_bytes(new[1])
            api.create(body(one))
            time.sleep(3.0 / count)  # for over three seconds: the files are checked every second
        eventually(lambda: _in_the_way(cluster, name) or _send_another(api, name, names), "a writer that is in the way")
        eventually(lambda: issued(api) >= set(names), "every request to be signed")
    eventually(lambda: f"{pki / 'ca.crt'} was read again" in replica.log.read_text(), "the new authority to be taken up")
    api.create(body(f"{name}-last"))
    eventually(lambda: issued(api) >= {f"{name}-last"}, "the last request to be signed")
    require_once(cluster, [*names, f"{name}-last"])
    issuers = [_issuer(api, one, old, new[0]) for one in names]
    assert set(issuers[: count // 4]) == {"old"}
    assert _issuer(api, f"{name}-last", old, new[0]) == "new"


def _in_the_way(cluster: Bench, start: str) -> bool:
    """Whether a write of the controllers about one of these requests was refused because somebody else had changed the request."""
    return any(one.startswith(start) for one, _ in decisions(cluster, code=409))


def _send_another(api: KubeClient, start: str, names: list[str]) -> bool:
    names.append(f"{start}-{len(names):03d}")
    api.create(body(names[-1]))
    return False


def _issuer(api: KubeClient, name: str, old: bytes, new: bytes) -> str:
    """Return which CA's key signed a certificate. Raises if it is neither."""
    found = x509.load_pem_x509_certificate(base64.b64decode(api.get(CERTIFICATE_SIGNING_REQUEST, name)["status"]["certificate"]))
    with contextlib.suppress(Exception):
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(old))
        return "old"
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(new))
    return "new"


@contextlib.contextmanager
def _disturbed(cluster: Bench, names: Sequence[str]) -> Iterator[None]:
    """Label every request again and again."""
    stop = threading.Event()

    def label() -> None:
        with cluster.client() as client:
            number = 0
            while not stop.is_set():
                number += 1
                present = {one["metadata"]["name"]: one for one in client.list(CERTIFICATE_SIGNING_REQUEST)}
                for one in (one for one in names if one in present and not (present[one].get("status") or {}).get("certificate")):
                    patch = {"metadata": {"labels": {"disturbed": str(number)}}}
                    client.patch(CERTIFICATE_SIGNING_REQUEST, one, patch, type="merge")

    thread = threading.Thread(target=label)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@dataclasses.dataclass(frozen=True)
class Hostile:
    """The effect of one user's requests on another's: seconds until a certificate at most, and the controllers' memory at most, in MiB.

    `harmless`: with as many requests that no controller handles, which keep the API server and the machine equally
    busy.
    """

    harmless: float
    hostile: float
    memory: float


def beset(cluster: Bench, api: KubeClient, replicas: Replicas, *, count: int, harmless: int, name: str = "beset") -> Hostile:
    """One user floods the controllers with requests that are never approved, and with approved ones that fail."""
    _may_ask(api, f"{name}-noisy")
    replica = replicas.start(*PATIENT)
    eventually(lambda: replicas.leader(api) is replica, "the replica to lead")
    before = _flooded(cluster, api, f"{name}-harmless", maker=f"{name}-noisy", count=harmless, signer="example.com/nobody")
    during = _flooded(cluster, api, f"{name}-hostile", maker=f"{name}-noisy", count=count)
    status = Path(f"/proc/{replica.process.pid}/status").read_text()
    [memory] = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:")]
    present = [one for one in api.list(CERTIFICATE_SIGNING_REQUEST) if one["spec"].get("username") == f"{name}-noisy"]
    assert len(present) == count + harmless
    assert not [one for one in present if (one.get("status") or {}).get("certificate")]
    return Hostile(harmless=before, hostile=during, memory=memory)


def _flooded(cluster: Bench, api: KubeClient, name: str, *, maker: str, count: int, signer: str = "") -> float:
    """Let a user create requests as fast as possible, and return how long another user's took at most in the meantime, and right after."""

    def flood(part: int) -> None:
        acting = Impersonation(user=maker, groups=("system:authenticated",))
        noisy = KubeClient(replace(cluster.cluster().access, impersonation=acting), timeout=600)
        for number in range(part, count, 4):
            made = body(f"{name}-{number:05d}")
            made["spec"]["signerName"] = signer or made["spec"]["signerName"]
            if number % 3 == 1:
                made["spec"]["request"] = base64.b64encode(request(names=[("dns", "x" * 60 + ".example")] * 50)).decode()
            if number % 3 == 2:
                made["spec"]["usages"] = ["client auth"]
            noisy.create(made)
            if number % 3:
                _approved(api, made["metadata"]["name"])
        noisy.close()

    took = []
    with ThreadPoolExecutor(4) as pool:
        floods = [pool.submit(flood, part) for part in range(4)]
        while len(took) < 10 or not all(one.done() for one in floods):
            took.append(_seconds(api, f"{name}-good-{len(took):05d}"))
            time.sleep(0.2)
        for one in floods:
            one.result()
    return max(*took, *(_seconds(api, f"{name}-after-{number}") for number in range(10)))


def _may_ask(api: KubeClient, user: str) -> None:
    rbac = "rbac.authorization.k8s.io"
    api.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        }
    )


def _approved(api: KubeClient, name: str) -> None:
    condition = {"type": "Approved", "status": "True", "reason": "ByHand", "message": ""}
    made = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}}
    with contextlib.suppress(Conflict):
        api.update({**made, "status": {"conditions": [condition]}}, subresource="approval")


def _seconds(api: KubeClient, name: str) -> float:
    """Create a good request, and return how long it took until its certificate existed."""
    began = time.monotonic()
    api.create(body(name))
    while not (api.get(CERTIFICATE_SIGNING_REQUEST, name).get("status") or {}).get("certificate"):
        assert time.monotonic() < began + 600, f"{name} has no certificate"
        time.sleep(0.01)
    return time.monotonic() - began


def _insisted(call: Callable[[], Any]) -> None:
    """Retry until the API server answers; what was created before it was killed already exists."""
    end = time.monotonic() + 600
    while True:
        try:
            call()
        except KubewrightError as error:
            if "already exists" in str(error):
                return
            assert time.monotonic() < end, str(error)
            time.sleep(0.1)
        else:
            return


def _answers(api: KubeClient) -> bool:
    try:
        return api.raw("GET", "/readyz").status == 200
    except APIError:
        return False
