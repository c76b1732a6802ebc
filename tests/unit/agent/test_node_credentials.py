"""A node's certificate and kubeconfig in files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from fake_controllers import made_pair

from kubewright.agent.certificates.identity import is_usable, stored_credentials
from kubewright.agent.certificates.store import FileCredentialStore
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.clock import FakeClock
from kubewright.base.errors import CertificateError, CertificateMismatch
from kubewright.base.records import replace
from kubewright.http.proxies import Proxy
from kubewright.kube.credentials import Access

CLUSTER = Access(server="https://10.0.0.9:6443", ca_pem=b"-----BEGIN CERTIFICATE-----\n")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> FileCredentialStore:
    return FileCredentialStore.below(tmp_path / "node-1", clock=clock)


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "node-1" / "pki").iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_an_empty_store_has_no_identity(store: FileCredentialStore, tmp_path: Path, clock: FakeClock):
    assert store.cluster() is None
    assert store.pair() is None
    assert not is_usable(store, "node-1", now=clock.now())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "access",
    [
        Access(server="https://10.0.0.9:6443", verify=False),
        replace(CLUSTER, tls_server_name="api.example"),
        replace(CLUSTER, proxy=Proxy(url="http://10.0.0.7:3128", user="me@here", password="p:w")),
    ],
    ids=["insecure", "server-name", "proxy"],
)
def test_all_connection_settings_are_stored(access: Access, store: FileCredentialStore, tmp_path: Path):
    store.keep_cluster(access)
    assert store.cluster() == access
    assert mode(tmp_path / "node-1" / "kubelet.conf") == 0o600


def test_stored_credentials_are_read_by_another_store(store: FileCredentialStore, tmp_path: Path, clock: FakeClock):
    pair = made_pair()
    store.keep_cluster(CLUSTER)
    store.keep_pair(pair)
    other = FileCredentialStore.below(tmp_path / "node-1", clock=clock)
    assert other.cluster() == CLUSTER
    found = other.pair()
    assert found is not None
    assert found.pem() == pair.pem()
    assert is_usable(other, "node-1", now=clock.now())
    assert stored_credentials(other, "node-2", now=clock.now()) is None


def test_files_modes_and_link_are_those_of_the_kubelet(store: FileCredentialStore, tmp_path: Path, clock: FakeClock):
    pair = made_pair()
    store.keep_cluster(CLUSTER)
    store.keep_pair(pair)
    name = f"kubelet-client-{clock.now().astimezone():%Y-%m-%d-%H-%M-%S}.pem"
    pki = tmp_path / "node-1" / "pki"
    assert files(tmp_path) == [name, "kubelet-client-current.pem"]
    assert (pki / "kubelet-client-current.pem").readlink() == pki / name
    assert [mode(pki), mode(pki / name), mode(tmp_path / "node-1" / "kubelet.conf")] == [0o755, 0o600, 0o600]
    content = (pki / name).read_text()
    assert content.index("BEGIN CERTIFICATE") < content.index("BEGIN EC PRIVATE KEY")
    document = yaml.load((tmp_path / "node-1" / "kubelet.conf").read_bytes())
    assert document["users"] == [
        {
            "name": "default-auth",
            "user": {
                "client-certificate": str(pki / "kubelet-client-current.pem"),
                "client-key": str(pki / "kubelet-client-current.pem"),
            },
        }
    ]
    assert document["current-context"] == "default-context"
    assert document["contexts"][0]["context"]["namespace"] == "default"


def test_two_rotations_in_one_second_write_two_files(store: FileCredentialStore, tmp_path: Path):
    made = [made_pair() for _ in range(3)]
    for pair in made:
        store.keep_pair(pair)
    pki = tmp_path / "node-1" / "pki"
    kept = {path.read_bytes() for path in pki.iterdir() if not path.is_symlink()}
    assert kept == {pair.pem() for pair in made}
    assert (pki / "kubelet-client-current.pem").read_bytes() == made[-1].pem()


def test_an_interrupted_switch_is_finished(store: FileCredentialStore, tmp_path: Path):
    pair = made_pair()
    store.keep_pair(pair)
    pki = tmp_path / "node-1" / "pki"
    (pki / "kubelet-client-current.pem").rename(pki / "kubelet-client-updated.pem")
    found = store.pair()
    assert found is not None
    assert found.pem() == pair.pem()
    assert "kubelet-client-current.pem" in files(tmp_path)


def test_a_dangling_link_counts_as_missing(store: FileCredentialStore, tmp_path: Path):
    store.keep_pair(made_pair())
    pki = tmp_path / "node-1" / "pki"
    (pki / "kubelet-client-current.pem").resolve().unlink()
    assert store.pair() is None
    store.keep_pair(made_pair())
    assert store.pair() is not None


def test_a_file_where_the_link_belongs_is_an_error(store: FileCredentialStore, tmp_path: Path):
    pki = tmp_path / "node-1" / "pki"
    pki.mkdir(parents=True)
    (pki / "kubelet-client-current.pem").write_text("mine")
    with pytest.raises(CertificateError, match="is not a link"):
        store.keep_pair(made_pair())
    assert files(tmp_path) == ["kubelet-client-current.pem"]


@pytest.mark.parametrize("content", [b"", b"garbage", made_pair().certificate_pem()], ids=["empty", "garbage", "no key"])
def test_an_unreadable_pair_is_an_error_that_names_the_file(store: FileCredentialStore, tmp_path: Path, clock: FakeClock, content: bytes):
    store.keep_cluster(CLUSTER)
    store.keep_pair(made_pair())
    current = tmp_path / "node-1" / "pki" / "kubelet-client-current.pem"
    current.resolve().write_bytes(content)
    with pytest.raises(CertificateError, match=r"kubelet-client-current\.pem"):
        store.pair()
    assert not is_usable(store, "node-1", now=clock.now())


def test_a_key_of_another_certificate_is_refused(store: FileCredentialStore, tmp_path: Path):
    one, two = made_pair(), made_pair()
    store.keep_pair(one)
    (tmp_path / "node-1" / "pki" / "kubelet-client-current.pem").resolve().write_bytes(one.certificate_pem() + two.key.pem())
    with pytest.raises(CertificateMismatch):
        store.pair()


def test_the_pair_in_a_kubeconfig_of_init_becomes_the_first_one(tmp_path: Path, clock: FakeClock):
    pair = made_pair()
    document = kubeconfig_document(
        server=CLUSTER.server,
        cluster_name="kubernetes",
        user="system:node:node-1",
        credentials=EmbeddedCertificate(certificate_pem=pair.certificate_pem(), key_pem=pair.key.pem()),
        ca_pem=CLUSTER.ca_pem,
    )
    (tmp_path / "kubelet.conf").write_text(yaml.dump(document))
    store = FileCredentialStore(tmp_path / "node-1" / "pki", tmp_path / "kubelet.conf", clock=clock)
    found = store.pair()
    assert found is not None
    assert found.pem() == pair.pem()
    assert "kubelet-client-current.pem" in files(tmp_path)
    assert store.cluster() == CLUSTER


def test_simulated_nodes_do_not_sync_files(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    quick = FileCredentialStore.below(tmp_path / "quick", clock=clock, durable=False)
    quick.keep_cluster(CLUSTER)
    quick.keep_pair(made_pair())
    assert synced == []
    FileCredentialStore.below(tmp_path / "sure", clock=clock).keep_pair(made_pair())
    assert len(synced) >= 3
