"""cluster-info: creating it, signing it, and proving it."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base import yaml
from kubewright.base.errors import KubewrightError, TrustError
from kubewright.pki.pins import Pin, PinMismatch
from kubewright.tokens import cluster_info, parse
from kubewright.tokens.cluster_info import ChangedClusterInfo, ForgedClusterInfo, MissingSignature, UselessClusterInfo
from kubewright.tokens.secrets import StoredToken

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "reference" / "vectors.json").read_text())
TEXT = VECTORS["cluster_info_jws"]["kubeconfig"]
CA = VECTORS["ca_pin"]["certificate_pem"].encode()
PIN = Pin.parse(VECTORS["ca_pin"]["pin"])
OTHER_PIN = Pin(bytes(32))
TOKEN = parse("abcdef.0123456789abcdef")
SERVER = "https://10.98.0.11:6443"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def stored(text="abcdef.0123456789abcdef", **changes: object):
    return StoredToken(token=parse(text), **{"usages": ("authentication", "signing"), **changes})


def config_map(text=TEXT, token=TOKEN):
    return {"data": {"kubeconfig": text, f"jws-kubeconfig-{token.id}": cluster_info.detached_signature(text, token)}}


def verify(found, pinned=(), token=TOKEN):
    return cluster_info.verify(found, token=token, pinned=pinned, server="https://typed:6443", now=NOW)


def test_the_text_equals_that_of_the_reference_cluster():
    made = cluster_info.config_map(server=SERVER, ca_pem=CA)

    assert made == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": TEXT},
    }


@pytest.mark.parametrize("pinned", [(), (PIN,), (OTHER_PIN, PIN)])
def test_a_signed_text_is_trusted_and_names_the_server(pinned):
    found = verify(config_map(), pinned)

    assert (found.server, found.ca_pem, found.text) == (SERVER, CA, TEXT)


def test_a_second_reading_must_be_equal():
    found = verify(config_map(), [PIN])

    found.require_same(config_map(), server=SERVER)
    with pytest.raises(ChangedClusterInfo):
        found.require_same(config_map(TEXT.replace("10.98.0.11", "10.98.0.12")), server=SERVER)


def test_a_wrong_pin_is_refused_even_with_a_good_signature():
    with pytest.raises(PinMismatch, match="https://typed:6443 is not the one you pinned"):
        verify(config_map(), [OTHER_PIN])


def test_a_swapped_ca_is_refused():
    forged = config_map(TEXT.replace("certificate-authority-data: L", "certificate-authority-data: M"))
    forged["data"]["jws-kubeconfig-abcdef"] = config_map()["data"]["jws-kubeconfig-abcdef"]

    with pytest.raises(ForgedClusterInfo, match="not signed with the token abcdef") as caught:
        verify(forged, [PIN])
    assert "0123456789abcdef" not in str(caught.value)
    assert caught.value.remedy


def test_a_signature_by_another_secret_is_refused():
    with pytest.raises(ForgedClusterInfo):
        verify(config_map(token=parse("abcdef.ffffffffffffffff")))


@pytest.mark.parametrize("token", ["bcdefg.0123456789abcdef", "zzzzzz.0123456789abcdef"])
def test_a_token_that_did_not_sign_is_distinguished(token):
    with pytest.raises(MissingSignature, match=f"does not know the token {token[:6]}") as caught:
        verify(config_map(), token=parse(token))
    assert "token create" in caught.value.remedy


@pytest.mark.parametrize("found", [{}, {"data": None}, {"data": {}}, {"data": {"kubeconfig": 7}}, {"data": []}])
def test_a_config_map_without_text_cannot_be_used(found):
    with pytest.raises(UselessClusterInfo, match="no key kubeconfig"):
        verify(found)


def edited(edit):
    document = yaml.load(TEXT)
    edit(document)
    return config_map(yaml.dump(document))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda document: document.update({"clusters": []}), "one cluster with an empty name"),
        (lambda document: document["clusters"][0].update({"name": "other"}), "one cluster with an empty name"),
        (lambda document: document["clusters"][0]["cluster"].pop("certificate-authority-data"), "no CA certificate"),
        (lambda document: document["clusters"][0]["cluster"].update({"server": "http://a"}), "https"),
        (lambda document: document["clusters"][0]["cluster"].update({"certificate-authority": "/etc/passwd"}), "may not name files"),
        (lambda document: document["clusters"][0]["cluster"].update({"insecure-skip-tls-verify": True}), "may not disable verification"),
        (lambda document: document.update({"users": [{"name": "u", "user": {"exec": {"command": "sh"}}}]}), "may not run a program"),
        (lambda document: document.update({"users": [{"name": "u", "user": {"tokenFile": "/etc/shadow"}}]}), "may not name files"),
    ],
)
def test_a_signed_text_without_a_usable_cluster_is_refused(edit, reason):
    with pytest.raises(UselessClusterInfo, match=reason):
        verify(edited(edit))


def test_an_unreadable_ca_is_refused_with_pins():
    with pytest.raises(UselessClusterInfo, match="contains no certificate"):
        verify(edited(lambda document: document["clusters"][0]["cluster"].update({"certificate-authority-data": "eA=="})), [PIN])


def test_all_errors_are_about_trust():
    assert all(
        issubclass(kind, TrustError) for kind in (MissingSignature, ForgedClusterInfo, ChangedClusterInfo, UselessClusterInfo, PinMismatch)
    )


class TestSigning:
    def test_each_signing_token_gets_an_entry(self):
        tokens = [
            stored(),
            stored("bcdefg.0123456789abcdef"),
            stored("expird.0123456789abcdef", expiration="2026-01-02T03:04:05Z"),
            stored("cannot.0123456789abcdef", usages=("authentication",)),
        ]

        found = cluster_info.signed({"metadata": {"resourceVersion": "7"}, "data": {"kubeconfig": TEXT}}, tokens, now=NOW)

        assert found is not None
        assert found["metadata"] == {"resourceVersion": "7"}
        assert sorted(found["data"]) == ["jws-kubeconfig-abcdef", "jws-kubeconfig-bcdefg", "kubeconfig"]
        assert verify(found).server == SERVER

    def test_stale_entries_are_removed_and_foreign_ones_stay(self):
        before = {"data": {"kubeconfig": TEXT, "jws-kubeconfig-gonegg": "x", "note": "mine"}}

        found = cluster_info.signed(before, [], now=NOW)

        assert found == {"data": {"kubeconfig": TEXT, "note": "mine"}}

    @pytest.mark.parametrize("found", [config_map(), {"data": {}}, {}])
    def test_an_unchanged_config_map_gives_none(self, found):
        assert cluster_info.signed(found, [stored()], now=NOW) is None


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2), max_leaves=4
)


@given(st.dictionaries(st.sampled_from(["data", "kind"]), JSON))
def test_no_object_raises_outside_the_tree(found):
    with contextlib.suppress(KubewrightError):
        verify(found, [PIN])


@given(st.text(max_size=200))
def test_no_signed_text_raises_outside_the_tree(text):
    with contextlib.suppress(KubewrightError):
        verify(config_map(text), [PIN])


@given(st.lists(st.tuples(st.integers(0, len(TEXT) - 1), st.characters()), min_size=1, max_size=4))
def test_no_changed_text_raises_outside_the_tree(changes):
    text = list(TEXT)
    for position, character in changes:
        text[position] = character

    with contextlib.suppress(KubewrightError):
        verify(config_map("".join(text)), [PIN])
