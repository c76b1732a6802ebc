"""Keeping and creating certificates: what is reused, repaired and refused, and that nothing existing is ever replaced."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pki_cases import CASES, configuration
from pki_kit import CONFIG, DAY, SPECS, START, authority, ensure_all, full_store, leaf, sources, specs_of

from kubewright.apis.kubeadm.types import APIServer
from kubewright.base.change import Action
from kubewright.base.errors import CertificateError, CertificateMismatch
from kubewright.base.records import replace
from kubewright.pki import certificates, ensure, keys, specs
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.names import Names
from kubewright.pki.specs import KeyPairSpec
from kubewright.pki.store import MemoryStore
from kubewright.pki.table import SERVER

LEAVES = [name for name, spec in SPECS.items() if not isinstance(spec, KeyPairSpec) and not spec.is_authority]
AUTHORITIES = ["ca", "front-proxy-ca", "etcd-ca"]


def ensure_one(store, name, **changes: object):
    return ensure.ensure(store, replace(SPECS[name], **changes), sources(5))


def test_everything_is_created_with_the_modes_of_kubeadm():
    store = MemoryStore()

    changes = ensure_all(store, SPECS.values(), sources())

    assert [change.action for change in changes] == [Action.CREATE] * 11
    assert {name for name, mode in store.modes.items() if mode == 0o644} == {name for name in store if name.endswith(".crt")}
    assert {store.modes[name] for name in store if not name.endswith(".crt")} == {0o600}
    assert len(list(store)) == 22
    assert [change.target for change in changes][:2] == ["certificate ca", "certificate apiserver"]
    assert all(change.diff == "" for change in changes)


def test_a_key_is_written_before_its_certificate():
    store = MemoryStore()

    ensure_all(store, SPECS.values(), sources())

    assert store.written[:4] == ["ca.key", "ca.crt", "apiserver.key", "apiserver.crt"]
    assert store.written[-2:] == ["sa.key", "sa.pub"]
    assert len(store.written) == 22


@pytest.mark.parametrize("written", range(22))
def test_a_run_killed_after_any_file_is_completed_by_the_next(written):
    whole = MemoryStore()
    ensure_all(whole, SPECS.values(), sources())
    store = MemoryStore({name: whole[name] for name in whole.written[:written]})

    ensure_all(store, SPECS.values(), sources(3))
    again = ensure_all(store, SPECS.values(), sources(4))

    assert list(store) == list(whole)
    assert all(store[name] == whole[name] for name in whole.written[:written])
    assert [change for change in again if change] == []
    assert len(again) == 11


@pytest.mark.parametrize("name", [*LEAVES, *AUTHORITIES])
def test_matching_certificates_are_kept_and_their_expiry_reported(name):
    store = full_store()
    before = {file: store[file] for file in store}

    change = ensure_one(store, name)

    assert change.action is Action.NONE
    assert change.reason == f"existing, expires in {3650 if name in AUTHORITIES else 365} d"
    assert {file: store[file] for file in store} == before


@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_without_its_key_is_refused(name):
    store = full_store()
    store.remove(SPECS[name].key_file)

    with pytest.raises(CertificateMismatch, match="is missing") as caught:
        ensure_one(store, name)
    assert SPECS[name].key_file in caught.value.remedy
    assert store.written == []


@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_of_another_ca_is_refused(name):
    store = full_store()
    text, key = leaf(authority(seed=9), common_name=SPECS[name].common_name)
    store = MemoryStore({**{file: store[file] for file in store}, SPECS[name].certificate_file: text, SPECS[name].key_file: key.pem()})

    with pytest.raises(CertificateMismatch, match=f"not signed by {SPECS[name].signer}") as caught:
        ensure_one(store, name)
    assert SPECS[name].certificate_file in caught.value.what


@pytest.mark.parametrize("name", LEAVES)
def test_the_key_of_another_certificate_is_refused(name):
    store = full_store()
    store.write(SPECS[name].key_file, keys.generate("ECDSA-P256").pem(), mode=0o600)

    with pytest.raises(CertificateMismatch, match="key of another certificate"):
        ensure_one(store, name)


@pytest.mark.parametrize("name", [name for name in LEAVES if name != "apiserver"])
def test_another_user_in_a_client_certificate_is_refused(name):
    with pytest.raises(CertificateMismatch, match="common name"):
        ensure_one(full_store(), name, common_name="somebody-else")


def test_another_common_name_of_the_api_server_is_kept():
    """Its clients check only the alternative names."""
    assert not ensure_one(full_store(), "apiserver", common_name="somebody-else")


def test_a_missing_organisation_is_refused_and_a_surplus_one_kept():
    """kubeadm before 1.29 put system:masters into apiserver-kubelet-client."""
    store = full_store()
    signer = ensure.load_authority(store, "ca")
    text, key = leaf(signer, common_name="kube-apiserver-kubelet-client", organizations=("system:masters",))
    store.write("apiserver-kubelet-client.crt", text, mode=0o644)
    store.write("apiserver-kubelet-client.key", key.pem(), mode=0o600)

    assert not ensure_one(store, "apiserver-kubelet-client")
    with pytest.raises(CertificateMismatch, match='lacks the organisation "system:nodes"'):
        ensure_one(store, "apiserver-kubelet-client", organizations=("system:nodes",))


def test_a_missing_usage_is_refused():
    with pytest.raises(CertificateMismatch, match="lacks the usage serverAuth"):
        ensure_one(full_store(), "apiserver-etcd-client", usages=SERVER)


def test_all_missing_names_are_reported():
    config = configuration(
        encryption_algorithm="ECDSA-P256",
        api_server=APIServer(cert_sans=("new.example.com", "192.0.2.7")),
    )

    with pytest.raises(CertificateMismatch, match=r"not for new\.example\.com, 192\.0\.2\.7") as caught:
        ensure.ensure(full_store(), specs_of(config)["apiserver"], sources())
    assert "remove apiserver.crt and apiserver.key" in caught.value.remedy


def test_surplus_names_are_kept():
    config = configuration(encryption_algorithm="ECDSA-P256", api_server=APIServer(cert_sans=("new.example.com",)))
    store = full_store(config)

    assert not ensure_one(store, "apiserver")


def test_a_certificate_for_a_wildcard_is_kept():
    store = full_store()
    signer = ensure.load_authority(store, "ca")
    wanted = SPECS["apiserver"].names
    named = Names(dns=("*.default.svc.cluster.local", *wanted.dns[:3], "node1"), ips=wanted.ips)
    text, key = leaf(signer, common_name="kube-apiserver", usages=SERVER, names=named)
    store.write("apiserver.crt", text, mode=0o644)
    store.write("apiserver.key", key.pem(), mode=0o600)

    assert not ensure_one(store, "apiserver")


def test_every_check_has_a_row():
    assert [check.name for check in specs.CHECKS] == ["chain", "key there", "key fits", "subject", "usages", "names"]


def test_an_expired_certificate_is_kept_and_reported():
    change = ensure.ensure(full_store(), SPECS["apiserver"], sources(start=START + 368 * DAY))

    assert change.action is Action.NONE
    assert change.reason == "existing, expired 3 d ago"


def test_a_certificate_from_the_future_is_kept_and_reported():
    change = ensure.ensure(full_store(), SPECS["ca"], sources(start=START - timedelta(hours=2)))

    assert change.reason == "existing, not valid for another 1 h"


@pytest.mark.parametrize("file", ["ca.crt", "ca.key", "apiserver.crt", "apiserver.key"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_an_unreadable_file_is_an_error_that_names_it(file, content):
    store = full_store()
    store.write(file, content, mode=0o600)
    writes = len(store.written)

    with pytest.raises(CertificateError, match=file.replace(".", r"\.")):
        ensure_one(store, "apiserver")
    assert len(store.written) == writes


def test_a_leaf_instead_of_a_ca_is_refused():
    store = full_store()
    store.write("ca.crt", store["apiserver.crt"], mode=0o644)

    with pytest.raises(CertificateMismatch, match="not a CA certificate"):
        ensure_one(store, "ca")


def test_a_ca_with_another_key_is_refused():
    store = full_store()
    store.write("ca.key", store["etcd/ca.key"], mode=0o600)

    with pytest.raises(CertificateMismatch, match=r"ca\.crt and ca\.key do not match"):
        ensure_one(store, "ca")


def test_a_leaf_without_ca_gives_a_hint_what_to_create_first():
    with pytest.raises(CertificateError, match=r"ca\.crt is missing") as caught:
        ensure_one(MemoryStore(), "apiserver")
    assert "init phase certs" in caught.value.remedy


def test_an_intermediate_in_the_file_completes_the_chain():
    store = full_store()
    root = ensure.load_authority(store, "ca")
    middle_spec = replace(SPECS["ca"], signer="ca", common_name="middle", usages=())
    key = keys.generate("ECDSA-P256")
    middle = _authority_signed_by(root, middle_spec, key)
    signer = ensure.load_authority(MemoryStore({"m.crt": middle, "m.key": key.pem()}), "m")
    text, leaf_key = leaf(signer, common_name="front-proxy-client")
    store.write("apiserver-kubelet-client.key", leaf_key.pem(), mode=0o600)
    spec = replace(SPECS["apiserver-kubelet-client"], common_name="front-proxy-client")

    store.write("apiserver-kubelet-client.crt", text + middle, mode=0o644)
    assert not ensure.ensure(store, spec, sources())

    store.write("apiserver-kubelet-client.crt", text, mode=0o644)
    with pytest.raises(CertificateMismatch, match="not signed by"):
        ensure.ensure(store, spec, sources())


def _authority_signed_by(root, spec, key):
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    builder = x509.CertificateBuilder(
        root.certificate.native.subject, ensure.issuing.subject_of(spec.common_name), key.native.public_key(), 7, START, START + DAY
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(root.key.native, root.key.signature_hash()).public_bytes(Encoding.PEM)


def test_a_bundle_in_the_file_of_the_ca_is_used_completely():
    """During a change of CA: leaves of either stay, and the one with the key signs, at any position."""
    store = full_store()
    new = authority(seed=4, common_name="kubernetes")
    store.write("ca.crt", store["ca.crt"] + new.pem, mode=0o644)
    store.write("ca.key", new.key.pem(), mode=0o600)
    store.remove("apiserver-kubelet-client.crt")

    kept = ensure_one(store, "apiserver")
    made = ensure_one(store, "apiserver-kubelet-client")

    assert (kept.action, made.action) == (Action.NONE, Action.CREATE)
    assert certificates.first(store["apiserver-kubelet-client.crt"], source="x").issued_by(new.certificate)


def test_a_lone_key_is_used():
    store = full_store()
    before = store["apiserver.key"]
    store.remove("apiserver.crt")

    change = ensure_one(store, "apiserver")

    assert change.reason == "made for the existing key, expires in 365 d"
    assert store["apiserver.key"] == before
    assert store.written == ["apiserver.crt"]
    assert certificates.fits(certificates.first(store["apiserver.crt"], source="x"), keys.load(before, source="x"))


class TestExternalAuthority:
    def test_leaves_of_an_external_ca_are_kept_and_that_is_reported(self):
        store = full_store()
        store.remove("ca.key")

        changes = ensure_all(store, SPECS.values(), sources())

        assert [change for change in changes if change] == []
        assert changes[0].reason == "existing keyless, expires in 3650 d"
        assert ensure.is_external(store)
        assert store.written == []

    @pytest.mark.parametrize("name", ["apiserver", "apiserver-kubelet-client"])
    def test_a_missing_leaf_is_an_error_and_nothing_is_written(self, name):
        store = full_store()
        store.remove("ca.key")
        store.remove(SPECS[name].certificate_file)
        store.remove(SPECS[name].key_file)

        with pytest.raises(CertificateError, match=f"{name} is missing and cannot be created") as caught:
            ensure_one(store, name)
        assert "ca.key" in caught.value.remedy
        assert store.written == []

    def test_missing_service_account_keys_are_an_error(self):
        store = full_store()
        for file in ("ca.key", "sa.key", "sa.pub"):
            store.remove(file)

        with pytest.raises(CertificateError, match=r"sa\.key and sa\.pub are missing"):
            ensure_one(store, "sa")


class TestServiceAccountKeys:
    def test_a_missing_public_half_is_created_again(self):
        store = full_store()
        before = store["sa.pub"]
        store.remove("sa.pub")

        change = ensure_one(store, "sa")

        assert change.action is Action.UPDATE
        assert store["sa.pub"] == before
        assert store.written == ["sa.pub"]

    def test_a_missing_private_half_is_an_error(self):
        store = full_store()
        store.remove("sa.key")

        with pytest.raises(CertificateError, match=r"sa\.key is missing, although sa\.pub exists"):
            ensure_one(store, "sa")

    def test_mismatched_halves_are_an_error(self):
        store = full_store()
        store.write("sa.pub", keys.generate("ECDSA-P256").public_pem(), mode=0o600)

        with pytest.raises(CertificateMismatch, match="do not match"):
            ensure_one(store, "sa")

    def test_a_public_file_may_contain_older_keys_too(self):
        store = full_store()
        store.write("sa.pub", keys.generate("ECDSA-P256").public_pem() + store["sa.pub"], mode=0o600)

        assert not ensure_one(store, "sa")

    def test_matching_service_account_keys_are_kept(self):
        assert ensure_one(full_store(), "sa").reason == "existing"


def test_all_certificates_of_one_run_expire_in_the_same_second():
    class Slow:
        def __init__(self) -> None:
            self.clock = sources().clock

        def now(self):
            self.clock.advance(3)
            return self.clock.now()

    store = MemoryStore()

    ensure_all(store, SPECS.values(), IssuingSources(Slow(), sources().random, started=START))

    ends = {certificates.parse(store[name])[0].not_after for name in store if name.endswith(".crt") and not name.endswith("ca.crt")}
    assert len(ends) == 1


def test_configurations_request_different_certificates():
    assert set(specs_of(CONFIG)) - set(specs_of(CASES["external-etcd"])) == {
        "etcd-ca",
        "etcd-server",
        "etcd-peer",
        "etcd-healthcheck-client",
        "apiserver-etcd-client",
    }
