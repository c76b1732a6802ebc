"""Keeping and creating kubeconfigs with client certificates."""

from __future__ import annotations

import base64

import pytest
from pki_kit import ADDRESSES, CONFIG, DAY, START, authority, full_store, sources

from kubewright.base import yaml
from kubewright.base.change import Action
from kubewright.base.errors import CertificateError, CertificateMismatch
from kubewright.base.records import replace
from kubewright.pki import certificates, keys, kubeconfigs, specs
from kubewright.pki.store import MemoryStore

SPECS = {spec.name: spec for spec in specs.kubeconfigs_for(CONFIG, ADDRESSES)}
PKI = full_store()


def ensure_one(files, name="admin", store=PKI, start=START, **changes: object):
    return kubeconfigs.ensure_kubeconfig(files, store, replace(SPECS[name], **changes), sources(3, start))


def made(name="admin", store=PKI):
    files = MemoryStore()
    ensure_one(files, name, store)
    return files


def edited(edit, name="admin"):
    document = yaml.load(made(name)[f"{name}.conf"])
    edit(document)
    return MemoryStore({f"{name}.conf": yaml.dump(document).encode()})


@pytest.mark.parametrize("name", SPECS)
def test_a_missing_file_is_created_and_a_second_run_keeps_it(name):
    files = MemoryStore()

    first, second = ensure_one(files, name), ensure_one(files, name)

    assert first.target == f"kubeconfig {name}.conf"
    assert (first.action, first.reason) == (Action.CREATE, "made, expires in 365 d")
    assert (second.action, second.reason) == (Action.NONE, "existing, expires in 365 d")
    assert files.written == [f"{name}.conf"]
    assert files.modes[f"{name}.conf"] == 0o600


def test_the_certificate_is_for_the_user_and_matches_its_key():
    resolved = kubeconfigs.load(made("kubelet")["kubelet.conf"], source="kubelet.conf").user

    pair = certificates.pair_of(resolved.client_certificate_data, resolved.client_key_data, source="kubelet.conf")

    assert (pair.leaf.common_name, pair.leaf.organizations) == ("system:node:node1", ("system:nodes",))
    assert pair.leaf.issued_by(certificates.parse(PKI["ca.crt"])[0])


def test_a_whole_bundle_is_embedded():
    """kubeadm keeps only the first certificate, so that clients lose the other one during a change of CA."""
    store = full_store()
    store.write("ca.crt", authority(seed=4).pem + store["ca.crt"], mode=0o644)

    cluster = yaml.load(made(store=store)["admin.conf"])["clusters"][0]["cluster"]

    assert base64.b64decode(cluster["certificate-authority-data"]) == store["ca.crt"]
    assert len(certificates.parse(store["ca.crt"])) == 2


def test_another_server_is_kept_and_reported():
    change = ensure_one(made(), server="https://lb.example.com:6443")

    assert change.action is Action.NONE
    assert change.reason == "existing, its server is https://10.98.0.11:6443 and would be https://lb.example.com:6443, expires in 365 d"


def test_an_expired_certificate_is_kept_and_reported():
    assert ensure_one(made(), start=START + 400 * DAY).reason == "existing, expired 35 d ago"


def test_a_file_of_another_cluster_is_refused():
    other = full_store()

    with pytest.raises(CertificateMismatch, match=r"admin\.conf trusts another CA than ca\.crt") as caught:
        ensure_one(made(store=other))
    assert "remove admin.conf" in caught.value.remedy


def test_a_file_from_before_a_bundle_is_kept():
    store = full_store()
    files = made(store=store)
    store.write("ca.crt", authority(seed=4).pem + store["ca.crt"], mode=0o644)

    assert not ensure_one(files, store=store)


def test_references_to_files_are_kept_as_they_are():
    """kubelet.conf looks like this after `kubelet-finalize`."""

    def refer(document):
        document["users"][0]["user"] = {
            "client-certificate": "/var/lib/kubelet/pki/current.pem",
            "client-key": "/var/lib/kubelet/pki/current.pem",
        }

    assert ensure_one(edited(refer, "kubelet"), "kubelet").reason == "existing"


def test_a_key_of_another_user_is_refused():
    def swap(document):
        document["users"][0]["user"]["client-key-data"] = base64.b64encode(keys.generate("ECDSA-P256").pem()).decode()

    with pytest.raises(CertificateMismatch, match=r"certificate and key of admin\.conf do not match"):
        ensure_one(edited(swap))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda document: document.update({"current-context": "nobody"}), 'the context "nobody" does not exist'),
        (lambda document: document.update({"clusters": []}), 'there is no cluster "kubernetes"'),
        (lambda document: document["clusters"][0]["cluster"].pop("certificate-authority-data"), "it has no CA data"),
        (lambda document: document["clusters"][0]["cluster"].pop("server"), "needs the URL"),
    ],
)
def test_an_unusable_kubeconfig_is_refused(edit, reason):
    files = edited(edit)

    with pytest.raises(CertificateMismatch, match=reason):
        ensure_one(files)
    assert files.written == []


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", b"{", b"[]", b"kind: Pod\n", b"clusters: 7\n", b"users:\n- user: {token: [x]}\n"])
def test_an_unreadable_file_is_an_error_that_names_its_path(text):
    with pytest.raises(CertificateError, match=r"admin\.conf"):
        ensure_one(MemoryStore({"admin.conf": text}))


def test_without_the_key_of_the_ca_a_missing_file_is_an_error():
    store = full_store()
    store.remove("ca.key")
    files = MemoryStore()

    with pytest.raises(CertificateError, match=r"admin\.conf is missing and cannot be created"):
        ensure_one(files, store=store)
    assert files.written == []


def test_without_the_key_of_the_ca_an_existing_file_is_kept():
    store = full_store()
    files = made(store=store)
    store.remove("ca.key")

    assert not ensure_one(files, store=store)
