"""Renewing: a new key and a new lifetime; everything else is copied from the old certificate."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pki_kit import ADDRESSES, CONFIG, DAY, SPECS, START, authority, full_store, sources

from kubewright.base import yaml
from kubewright.base.clock import FakeClock
from kubewright.base.durations import HOUR, Duration
from kubewright.base.errors import CertificateError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.pki import certificates, issuing, keys, kubeconfigs, renewal, specs, table
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.keys import Algorithm, FreshKeys
from kubewright.pki.renewal import Terms
from kubewright.pki.store import MemoryStore, load_authority

LATER = START + 100 * DAY
TERMS = Terms(algorithm=Algorithm.ECDSA_P256, lifetime=200 * DAY)
NAMES = ("apiserver", "etcd/server", "etcd/peer", "apiserver-kubelet-client", "front-proxy-client")


def later(seed=9):
    return IssuingSources(FakeClock(LATER), SeededRandom(seed), FreshKeys(), LATER)


def signer_of(store, base):
    row = next(row for row in table.CERTIFICATES if isinstance(row, table.Leaf) and row.base == base)
    return load_authority(store, table.authority(row.signer).base)


def read(store, name):
    return certificates.first(store.read(name), source=name)


@pytest.mark.parametrize("base", NAMES)
def test_a_renewed_pair_has_a_new_key_and_lifetime_and_the_old_identity(base):
    store = full_store()
    before, old_key = read(store, f"{base}.crt"), store.read(f"{base}.key")
    signer = signer_of(store, base)
    renewal.renew_pair(store, base, signer, terms=TERMS, sources=later())
    after = read(store, f"{base}.crt")
    assert store.written == [f"{base}.key", f"{base}.crt"]
    assert (store.modes[f"{base}.key"], store.modes[f"{base}.crt"]) == (0o600, 0o644)
    assert (after.subject, after.names, after.usages, after.extensions) == (before.subject, before.names, before.usages, before.extensions)
    assert (after.not_before, after.not_after) == (LATER - timedelta(minutes=5), LATER + 200 * DAY)
    assert after.serial != before.serial
    assert store.read(f"{base}.key") != old_key
    assert certificates.fits(after, keys.load(store.read(f"{base}.key"), source="key"))
    assert certificates.chains_to(after, roots=signer.bundle)


def test_the_old_key_is_not_needed():
    store = full_store()
    store.remove("apiserver.key")
    renewal.renew_pair(store, "apiserver", signer_of(store, "apiserver"), terms=TERMS, sources=later())
    assert certificates.fits(read(store, "apiserver.crt"), keys.load(store.read("apiserver.key"), source="key"))


def test_the_algorithm_is_the_configured_one():
    store = full_store()
    terms = replace(TERMS, algorithm=Algorithm.ECDSA_P384)
    renewal.renew_pair(store, "apiserver", signer_of(store, "apiserver"), terms=terms, sources=later())
    assert read(store, "apiserver.crt").key_kind == "ECDSA-P384"


@pytest.mark.parametrize(
    ("gates", "algorithm"), [({}, "ECDSA-P384"), ({"PublicKeysECDSA": True}, "ECDSA-P256"), ({"PublicKeysECDSA": False}, "RSA-2048")]
)
def test_period_and_algorithm_come_from_the_cluster_and_its_feature_gates(gates, algorithm):
    cluster = replace(
        CONFIG.cluster, encryption_algorithm="ECDSA-P384", feature_gates=gates, certificate_validity_period=Duration(48 * HOUR)
    )
    assert Terms.of(cluster) == Terms(algorithm=Algorithm(algorithm), lifetime=timedelta(hours=48))


def test_usages_unknown_to_kubernetes_are_copied():
    ca = authority()
    usages = ("clientAuth", "emailProtection", "1.3.6.1.4.1.311.20.2.2")
    spec = replace(SPECS["apiserver-kubelet-client"], usages=usages)
    key = keys.generate(spec.algorithm)
    text = issuing.signed(spec, key, ca, started=START, random=SeededRandom(1))
    store = MemoryStore({"apiserver-kubelet-client.crt": text})
    before = read(store, "apiserver-kubelet-client.crt")
    renewal.renew_pair(store, "apiserver-kubelet-client", ca, terms=TERMS, sources=later())
    after = read(store, "apiserver-kubelet-client.crt")
    assert len(after.usages) == 3
    assert after.usages == before.usages


def test_a_missing_certificate_is_reported_and_nothing_is_written():
    store = full_store()
    store.remove("apiserver.crt")
    with pytest.raises(CertificateError, match=r"apiserver\.crt is missing"):
        renewal.renew_pair(store, "apiserver", signer_of(store, "apiserver"), terms=TERMS, sources=later())
    assert store.written == []


def test_nothing_is_written_if_the_ca_has_no_key():
    store = full_store()
    store.remove("ca.key")
    with pytest.raises(CertificateError, match=r"ca\.key is not here"):
        renewal.renew_pair(store, "apiserver", signer_of(store, "apiserver"), terms=TERMS, sources=later())
    assert store.written == []


def kubeconfig_store(certificates_store, name="admin"):
    files = MemoryStore()
    row = table.kubeconfig(name)
    kubeconfigs.ensure_kubeconfig(files, certificates_store, specs.of_kubeconfig(row, CONFIG, ADDRESSES), sources())
    return MemoryStore({one: files[one] for one in files})


def renew_admin(files, store):
    renewal.renew_kubeconfig(files, "admin.conf", load_authority(store, "ca"), terms=TERMS, sources=later())
    return yaml.load(files.read("admin.conf"))


def test_a_renewed_kubeconfig_changes_only_its_certificate():
    store = full_store()
    files = kubeconfig_store(store)
    before = yaml.load(files.read("admin.conf"))
    old = renewal.client_certificate(files.read("admin.conf"), source="admin.conf")
    after = renew_admin(files, store)
    new = renewal.client_certificate(files.read("admin.conf"), source="admin.conf")
    assert (files.written, files.modes["admin.conf"]) == (["admin.conf"], 0o600)
    assert (new.subject, new.usages) == (old.subject, old.usages)
    assert new.serial != old.serial
    assert (new.not_before, new.not_after) == (LATER - timedelta(minutes=5), LATER + 200 * DAY)
    user = after["users"][0]["user"]
    assert sorted(user) == ["client-certificate-data", "client-key-data"]
    certificates.pair_of(base64.b64decode(user["client-certificate-data"]), base64.b64decode(user["client-key-data"]), source="admin.conf")
    after["users"] = before["users"]
    assert after == before


def test_a_renewed_kubeconfig_contains_the_whole_bundle():
    """kubeadm v1.36 embeds the first certificate only."""
    store = full_store()
    files = kubeconfig_store(store)
    bundle = store.read("ca.crt") + authority(seed=5).pem
    store.write("ca.crt", bundle, mode=0o644)
    after = renew_admin(files, store)
    embedded = base64.b64decode(after["clusters"][0]["cluster"]["certificate-authority-data"])
    assert embedded == bundle
    assert len(certificates.parse(embedded)) == 2


def test_other_entries_of_a_kubeconfig_stay():
    store = full_store()
    files = kubeconfig_store(store)
    document = yaml.load(files.read("admin.conf"))
    document["clusters"].insert(0, {"name": "other", "cluster": {"server": "https://other:6443"}})
    document["users"].insert(0, {"name": "other", "user": {"token": "x"}})
    document["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "other", "namespace": "n"}})
    document["extensions"] = [{"name": "mine", "extension": {"a": 1}}]
    document["clusters"][1]["cluster"]["tls-server-name"] = "cluster.example"
    files.write("admin.conf", yaml.dump(document).encode(), mode=0o600)
    after = renew_admin(files, store)
    assert [one["name"] for one in after["users"]] == ["other", "kubernetes-admin"]
    assert after["users"][0] == document["users"][0]
    assert after["clusters"] == document["clusters"]
    assert after["contexts"] == document["contexts"]
    assert after["extensions"] == document["extensions"]
    assert after["users"][1] != document["users"][1]


@pytest.mark.parametrize(
    ("user", "said"),
    [({"token": "x"}, "another kind"), ({"client-certificate": "a.pem", "client-key": "a.pem"}, "names the file a.pem"), ({}, "another")],
)
def test_a_kubeconfig_without_embedded_certificate_is_not_renewed(user, said):
    store = full_store()
    files = kubeconfig_store(store)
    document = yaml.load(files.read("admin.conf"))
    document["users"][0]["user"] = user
    files.write("admin.conf", yaml.dump(document).encode(), mode=0o600)
    with pytest.raises(CertificateError, match="embeds no client certificate") as caught:
        renew_admin(files, store)
    assert said in caught.value.detail
    assert files.written == ["admin.conf"]


STORE = {name: text for store in [full_store()] for name in store for text in [store[name]]}
CONFIG_FILE = kubeconfig_store(MemoryStore(dict(STORE)))["admin.conf"]
ENTRIES = st.sampled_from([None, "", "kubernetes", "kubernetes-admin", "kubernetes-admin@kubernetes", 5, [], {}])


@given(
    path=st.sampled_from(["current-context", "contexts", "clusters", "users"]), value=ENTRIES, inner=st.sampled_from(["", "name", "body"])
)
def test_a_kubeconfig_of_any_shape_is_renewed_or_refused(path, value, inner):
    store = MemoryStore(dict(STORE))
    document = yaml.load(CONFIG_FILE)
    if not inner or path == "current-context":
        document[path] = value
    else:
        document[path][0]["name" if inner == "name" else path[:-1]] = value
    files = MemoryStore({"admin.conf": yaml.dump(document).encode()})
    try:
        renew_admin(files, store)
    except CertificateError:
        assert files.written == []
    else:
        assert renewal.client_certificate(files.read("admin.conf"), source="admin.conf").not_after == LATER + 200 * DAY


@given(st.binary(max_size=200))
def test_an_invalid_kubeconfig_is_refused(text):
    files = MemoryStore({"admin.conf": text})
    with pytest.raises(CertificateError):
        renew_admin(files, MemoryStore(dict(STORE)))


def test_entries_without_a_name_are_found_by_it():
    document = yaml.load(CONFIG_FILE)
    document["clusters"][0]["name"] = None
    document["contexts"][0]["context"]["cluster"] = None
    files = MemoryStore({"admin.conf": yaml.dump(document).encode()})
    renew_admin(files, MemoryStore(dict(STORE)))
    assert files.written == ["admin.conf"]
