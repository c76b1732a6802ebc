"""Tenant clusters, stores and requests for tests of the hub."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from kubewright.apis.join_records import JoinRecord
from kubewright.base.clock import FakeClock
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import Event, HubStore
from kubewright.pki import issuing, keys
from kubewright.pki.keys import Algorithm
from kubewright.pki.specs import CertificateSpec

CLOCK = FakeClock()
STATE_KEY = bytes(range(32))


def authority(name: str, *, days: int = 3650) -> tuple[str, str]:
    """A CA with a key that is quick to make."""
    key = keys.generate(Algorithm.ECDSA_P256)
    spec = CertificateSpec(name=name, base=name, common_name=name, lifetime=timedelta(days=days), algorithm=Algorithm.ECDSA_P256)
    return issuing.self_signed(spec, key, started=CLOCK.now(), random=SeededRandom(7)).decode(), key.pem().decode()


CLIENT_CA, SERVING_CA, API_CA = authority("client-ca"), authority("serving-ca"), authority("api-ca")
JOIN_KEY = keys.generate(Algorithm.RSA_2048).pem().decode()


def cluster(name: str = "a", **more: object) -> TenantCluster:
    given = {
        "name": name,
        "server": "https://10.0.0.1:6443",
        "server_ca": API_CA[0],
        "kubernetes_version": "v1.36.3",
        "client_ca": CLIENT_CA[0],
        "client_key": CLIENT_CA[1],
        "serving_ca": SERVING_CA[0],
        "serving_key": SERVING_CA[1],
        "kubelet_client_ca": CLIENT_CA[0],
        "kubeconfig": "apiVersion: v1\nkind: Config\n",
        "join_key": JOIN_KEY,
    }
    return TenantCluster(**{**given, **more})


def event(what: str = "test", **more: object) -> Event:
    return Event(**{"at": "2026-01-02T03:04:05Z", "cluster": "a", "event": what, "details": {}, **more})


def generation(store: HubStore, name: str = "a") -> str:
    """Return the version of a cluster in a store, '' if there is none of that name."""
    return next((one.generation for one in store.clusters() if one.name == name), "")


def put(store: HubStore, found: TenantCluster) -> None:
    """Add a cluster, or replace the current one."""
    store.save_cluster(replace(found, generation=generation(store, found.name)), event(cluster=found.name))


def drop(store: HubStore, name: str = "a") -> None:
    """Remove the current cluster."""
    store.remove_cluster(name, event("cluster removed", cluster=name), contents=store.contents(name))


def keep(store: HubStore, record: JoinRecord, done: Event | None = None, **more: str) -> None:
    """Store a record, replacing the current one."""
    before = store.record(record.cluster, record.node)
    store.keep(record, done or event(), before=before, generation=generation(store, record.cluster), **more)


def decide(store: HubStore, cluster: str, subject: str, *, approved: bool) -> None:
    """Store a person's decision about a request."""
    store.save_verdict(cluster, subject, approved=approved, event=event(cluster=cluster), generation=generation(store, cluster))


def sqlite(directory: Path, *, key: bytes = STATE_KEY) -> SQLiteStore:
    return SQLiteStore(directory / "state.db", key=key, random=SeededRandom(8))
