"""The encrypted fields of NodeJoinRequests: known answers, both directions with a second implementation, and everything that is refused."""

from __future__ import annotations

import base64
import os

import pytest
from cryptography.hazmat.primitives import hashes
from hypothesis import given
from hypothesis import strategies as st
from old_peer import OldHub, OldNode, lock, oaep, to_text

from kubewright.base.randomness import SeededRandom
from kubewright.enrollment.protocol import answers, fields, requests
from kubewright.enrollment.protocol.answers import Answer, TunnelAnswer
from kubewright.enrollment.protocol.fields import MalformedField, SymmetricKey
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.pki import keys
from kubewright.pki.encryption import oaep as ours

TEXT_KEY = b"000102030405060708090a0b0c0d0e0f"
HUB = OldHub()
JOIN_KEY = keys.load(HUB.private_pem, source="the join key")


class Counting:
    """Nonces 00 01 02 …, as in the known answers."""

    def token_bytes(self, count: int) -> bytes:
        return bytes(range(count))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("https://10.0.0.1:6443", "AAECAwQFBgcICQoLLQD+G0VVa3vmyWQjXzeZa05vYaBeKX2KwgVqCQdr3xTpR6f/ew"),
        ("", "AAECAwQFBgcICQoLxO6MHhQI5Hi62RqP8eZ0hQ"),
    ],
)
def test_known_answers_are_reproduced(text, field):
    key = SymmetricKey(TEXT_KEY)
    assert key.seal(text, random=Counting()) == field
    assert key.open(field, name="x") == text


def test_a_new_key_has_32_digits():
    made = fields.new_key(SeededRandom(1))
    assert (len(made.content), made.content.decode() == made.content.decode().lower()) == (32, True)
    assert int(made.content, 16) > 0
    assert made.content.decode() not in repr(made)


def test_our_hub_reads_requests_of_oneinfra():
    node = OldNode("worker", "https://10.0.0.1:6443", ("10.0.0.5", "worker.example.com"))
    found = requests.read(node.request(HUB.public_pem), join_key=JOIN_KEY)
    assert found == JoinRequest(endpoint=node.endpoint, sans=node.sans, key=SymmetricKey(node.key))


def test_a_hub_of_oneinfra_reads_our_requests():
    wanted = JoinRequest(endpoint="https://10.0.0.1:6443", sans=("10.0.0.5",), key=fields.new_key(SeededRandom(2)))
    recipient = ours.load_recipient(HUB.public_pem.encode(), source="the ConfigMap")
    sent = requests.write(
        "worker", wanted, recipient=recipient, runtime_endpoint="unix:///a", image_endpoint="unix:///b", random=SeededRandom(3)
    )
    assert HUB.read(sent) == {
        "apiServerEndpoint": wanted.endpoint,
        "containerRuntimeEndpoint": "unix:///a",
        "imageServiceEndpoint": "unix:///b",
        "extraSANs": ["10.0.0.5"],
        "key": wanted.key.content,
    }
    assert requests.reread(sent, wanted.key) == wanted
    with pytest.raises(MalformedField, match="apiServerEndpoint cannot be decrypted"):
        requests.reread(sent, fields.new_key(SeededRandom(9)))


ANSWER = Answer(
    kubernetes_version="1.36.3",
    kubeconfig="apiVersion: v1\n" * 600,
    kubelet_config="kind: KubeletConfiguration\n",
    serving_certificate="cert",
    serving_key="key",
    client_ca="ca",
)


def test_a_node_of_oneinfra_reads_our_answer():
    node = OldNode("worker", "https://10.0.0.1:6443")
    status = answers.write(ANSWER, SymmetricKey(node.key), random=SeededRandom(4))
    assert node.results({"status": status}) == {
        "kubernetesVersion": "1.36.3",
        "kubeConfig": ANSWER.kubeconfig,
        "kubeletConfig": ANSWER.kubelet_config,
        "kubeletServerCertificate": "cert",
        "kubeletServerPrivateKey": "key",
        "kubeletClientCACertificate": "ca",
    }


def test_our_node_reads_answers_of_oneinfra_with_and_without_a_tunnel():
    node = OldNode("worker", "https://10.0.0.1:6443")
    found = HUB.answer(
        node.request(HUB.public_pem), node.results({"status": answers.write(ANSWER, SymmetricKey(node.key), random=SeededRandom(5))})
    )
    assert answers.read(found["status"], SymmetricKey(node.key)) == ANSWER
    ends = {"CIDR": "10.0.0.0/16", "address": "10.0.0.2/16", "peerPrivateKey": "k", "endpoint": "1.2.3.4:51820", "endpointPublicKey": "p"}
    found["status"]["vpn"] = {name: lock(text, node.key) for name, text in ends.items()}
    tunnel = answers.read(found["status"], SymmetricKey(node.key)).tunnel
    assert tunnel == TunnelAnswer(cidr="10.0.0.0/16", address="10.0.0.2/16", private_key="k", endpoint="1.2.3.4:51820", endpoint_key="p")


@pytest.mark.parametrize("size", [16, 24, 32])
def test_keys_of_every_aes_size_are_accepted(size):
    node = OldNode("worker", "https://10.0.0.1:6443", key=os.urandom(size))
    assert requests.read(node.request(HUB.public_pem), join_key=JOIN_KEY).endpoint == node.endpoint


def encrypted(content: bytes, **how: object) -> str:
    return to_text(HUB.key.public_key().encrypt(content, oaep(**how)))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "is missing"),
        (5, "is not a string"),
        ("", "has 0 characters, less than 342"),
        ("A" * 341, "less than 342"),
        ("A" * 343, "more than 342"),
        ("A" * 340 + "==", "is base64 with padding"),
        ("A" * 170 + "\n" + "A" * 171, "not base64 of the standard alphabet"),
        ("A" * 341 + "-", "not base64 of the standard alphabet"),
        ("A" * 341 + "B", "last bits are not zero"),
        ("A" * 342, "RSA-OAEP with SHA-256 for both the hash and MGF1"),
        (encrypted(TEXT_KEY, mgf=hashes.SHA1), "RSA-OAEP with SHA-256 for both the hash and MGF1"),
        (to_text(OldHub().key.public_key().encrypt(TEXT_KEY, oaep())), "encrypted to another key"),
        (encrypted(TEXT_KEY + b"\n"), "33 bytes instead of 16, 24 or 32; a newline at the end"),
        (encrypted(b""), "0 bytes instead of 16, 24 or 32"),
    ],
)
def test_an_invalid_key_is_refused_with_a_reason(value, why):
    with pytest.raises(MalformedField) as refused:
        fields.open_key(value, JOIN_KEY, name="symmetricKey")
    assert str(refused.value).startswith("symmetricKey ")
    assert why in str(refused.value)


@pytest.mark.parametrize("size", [0, 1, 11, 12, 27])
def test_too_short_fields_are_refused_before_decryption(size):
    with pytest.raises(MalformedField, match="characters, less than 38"):
        SymmetricKey(TEXT_KEY).open(to_text(b"x" * size), name="x")


def test_fields_of_another_key_or_with_invalid_text_are_refused():
    key = SymmetricKey(TEXT_KEY)
    with pytest.raises(MalformedField, match="cannot be decrypted"):
        key.open(to_text(b"x" * 28), name="x")
    with pytest.raises(MalformedField, match="more than 4096"):
        key.open("A" * 4097, name="x")
    sealed = fields.encode(ours_sealed(b"\xff", key.content))
    with pytest.raises(MalformedField, match="is not UTF-8"):
        key.open(sealed, name="x")


def ours_sealed(content: bytes, key: bytes) -> bytes:
    from kubewright.pki.encryption import sealing

    return sealing.seal(content, key, random=SeededRandom(6))


def test_an_rsa_key_of_another_size_changes_the_length():
    from cryptography.hazmat.primitives.asymmetric import rsa

    hub = OldHub(rsa.generate_private_key(65537, 3072))
    node = OldNode("worker", "https://10.0.0.1:6443")
    request = node.request(hub.public_pem)
    assert len(request["spec"]["symmetricKey"]) == 512
    assert requests.read(request, join_key=keys.load(hub.private_pem, source="key")).endpoint == node.endpoint


@given(st.binary(max_size=300))
def test_every_content_has_one_form(content):
    text = fields.encode(content)
    assert fields.decode(text, name="x", shortest=0, longest=400) == content
    assert text == base64.b64encode(content).decode().rstrip("=")


values = st.one_of(
    st.none(), st.integers(), st.text(max_size=400), st.binary(max_size=300).map(to_text), st.lists(st.text(max_size=60), max_size=3)
)


@given(st.one_of(values, st.dictionaries(st.sampled_from(["symmetricKey", "apiServerEndpoint", "extraSANs", "x"]), values)))
def test_every_request_is_read_or_refused(spec):
    with pytest.raises(MalformedField):
        requests.read({"spec": spec}, join_key=JOIN_KEY)


@given(st.dictionaries(st.sampled_from(["apiServerEndpoint", "extraSANs", "imageServiceEndpoint"]), values))
def test_every_request_with_a_valid_key_is_read_or_refused(spec):
    good = OldNode("worker", "https://10.0.0.1:6443", key=TEXT_KEY).request(HUB.public_pem)
    try:
        found = requests.read({"spec": {**good["spec"], **spec}}, join_key=JOIN_KEY)
    except MalformedField:
        return
    assert found.key.content == TEXT_KEY


@given(st.dictionaries(st.sampled_from(["kubernetesVersion", "kubeConfig", "vpn", "kubeletConfig"]), values))
def test_every_answer_is_read_or_refused(status):
    with pytest.raises(MalformedField):
        answers.read(status, SymmetricKey(TEXT_KEY))
