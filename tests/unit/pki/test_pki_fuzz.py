"""No bytes make a parser raise outside the error tree: arbitrary ones, and good ones with a few bytes changed."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pki_kit import authority, ensure_all, full_store, leaf, sources

import certificate_summaries as summaries
import parts
from kubewright.base.errors import KubewrightError
from kubewright.pki import certificates, keys, kubeconfigs, pins
from kubewright.pki.encoding import pem
from kubewright.pki.encryption import sealing
from kubewright.pki.names import Names
from kubewright.pki.requests import csr, request_details, request_signing
from kubewright.pki.specs import KeyPairSpec
from kubewright.pki.store import MemoryStore

FUZZ = settings(max_examples=parts.given(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
CA = authority()
LEAF, KEY = leaf(CA, names=Names(dns=("a.example.com",), ips=("192.0.2.1", "fd00::1")), organizations=("o",))
RSA = keys.generate("RSA-2048")
REQUEST = csr.node_serving_request("node-1", KEY, names=Names(dns=("node-1",), ips=("192.0.2.1",)))

PARSERS = {
    "bundles": (lambda text: [certificate.describe() for certificate in certificates.parse(text)], CA.pem + LEAF),
    "common names": (lambda text: certificates.first_common_name(text, source="x"), LEAF),
    "keys": (lambda text: keys.load(text, source="x").signature_hash(), KEY.pem()),
    "rsa keys": (lambda text: keys.load(text, source="x").public_der(), RSA.pem()),
    "public keys": (lambda text: keys.load_public(text, source="x"), KEY.public_pem()),
    "requests": (lambda text: request_signing.signature_valid(request_details.read(text)), REQUEST),
    "pairs": (lambda text: certificates.parse_pair(text, source="x"), LEAF + KEY.pem()),
    "pins": (pins.of_bundle, CA.pem),
    "sealed values": (lambda text: sealing.unseal(text, bytes(32), name="x"), bytes(60)),
    "kubeconfigs": (lambda text: kubeconfigs.load(text, source="x"), b"apiVersion: v1\nkind: Config\nclusters: []\n"),
}


def _survives(parse, text):
    with contextlib.suppress(KubewrightError):
        parse(text)


@pytest.mark.parametrize("name", PARSERS)
@FUZZ
@given(text=st.binary(max_size=300))
@example(text=b"-----BEGIN CERTIFICATE-----")
def test_arbitrary_bytes_raise_only_errors_of_the_tree(name, text):
    _survives(PARSERS[name][0], text)


def changes(size):
    return st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", PARSERS)
@FUZZ
@given(data=st.data())
def test_changed_text_raises_only_errors_of_the_tree(name, data):
    parse, good = PARSERS[name]
    changed = bytearray(good)
    for position, value in data.draw(changes(len(good))):
        changed[position] = value

    _survives(parse, bytes(changed))


def _der_of(text):
    return pem.blocks(text, source="x")


@pytest.mark.parametrize("name", ["bundles", "keys", "rsa keys", "public keys", "requests", "pins", "pairs"])
@FUZZ
@given(data=st.data())
def test_changed_content_raises_only_errors_of_the_tree(name, data):
    """The base64 stays valid, the content does not."""
    parse, good = PARSERS[name]
    blocks = _der_of(good)
    chosen = data.draw(st.integers(0, len(blocks) - 1))
    der = bytearray(blocks[chosen].der)
    for position, value in data.draw(changes(len(der))):
        der[position] = value
    blocks[chosen] = pem.Block(blocks[chosen].label, bytes(der))

    _survives(parse, pem.join(blocks))


@FUZZ
@given(data=st.data())
def test_every_readable_certificate_can_be_summarised_and_checked(data):
    """Nothing fails later: chains, expiry, names, the form for comparing."""
    der = bytearray(_der_of(LEAF)[0].der)
    for position, value in data.draw(changes(len(der))):
        der[position] = value
    try:
        found = certificates.parse(pem.encode(pem.CERTIFICATE, bytes(der)))[0]
    except KubewrightError:
        return

    assert certificates.chains_to(found, roots=[CA.certificate]) in {True, False}
    assert certificates.expiry(found, sources().clock.now())
    assert isinstance(summaries.of_certificate(found, authorities={"ca": CA.certificate})["extensions"], list)


FULL = full_store()
FILES = list(FULL)


@FUZZ
@given(data=st.data())
def test_a_damaged_store_is_an_error_of_the_tree(data):
    from pki_kit import SPECS

    name = data.draw(st.sampled_from(FILES))
    content = bytearray(FULL[name])
    for position, value in data.draw(changes(len(content))):
        content[position] = value
    store = MemoryStore({**{file: FULL[file] for file in FULL}, name: bytes(content)})

    _survives(lambda _: ensure_all(store, SPECS.values(), sources()), b"")

    assert set(store.written) <= {spec.public_file for spec in SPECS.values() if isinstance(spec, KeyPairSpec)}
