"""Certificate signing requests."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

import certificate_summaries as summaries
from kubewright.base.errors import CertificateError
from kubewright.pki import keys
from kubewright.pki.certificates import AlternativeNames
from kubewright.pki.keys import PrivateKey
from kubewright.pki.names import Names
from kubewright.pki.requests import csr, request_details

KEY = keys.generate("ECDSA-P256")
USAGES = ["digital signature", "client auth"]


def scalar(value):
    return PrivateKey(ec.derive_private_key(value, ec.SECP256R1()))


@pytest.mark.parametrize(
    ("value", "node", "name"),
    [
        (1, "node-1", "node-csr-_v0uUYH0FxEZl7ih8xa2llEqEdqKgeMs3eas458m8EE"),
        (2, "node-1", "node-csr-G1TCiI2AbupduDxUMDcnXVjAhyIkhIZH3hOQQWyIFl0"),
        (1, "node-2", "node-csr-qAMB08rpHRhDXh0zEta0b_bm3xYmyn5IWIP7ivFOhYA"),
    ],
)
def test_digest_names_equal_those_of_the_kubelet(value, node, name):
    """Names that the kubelet v1.36 gives to requests with these keys and subjects."""
    public = scalar(value).public_der()

    assert csr.digest_name(public, common_name=csr.node_user(node), organizations=["system:nodes"], usages=USAGES) == name


def test_a_client_request_of_a_node_has_only_its_name():
    found = summaries.of_request(csr.node_client_request("node-1", KEY))

    assert found.subject == (("organizationName", "system:nodes"), ("commonName", "system:node:node-1"))
    assert (found.common_name, found.organizations) == ("system:node:node-1", ("system:nodes",))
    assert found.extensions == ()
    assert found.names == AlternativeNames()
    assert found.public_key == KEY.public_der()
    assert found.signature_valid


def test_a_serving_request_has_sorted_names():
    names = Names(dns=("node-1", "a.example.com", "node-1"), ips=("192.0.2.9", "10.0.0.1", "fd00::1"))

    found = summaries.of_request(csr.node_serving_request("node-1", KEY, names=names))

    assert found.names.dns == ("a.example.com", "node-1")
    assert found.names.ips == ("10.0.0.1", "192.0.2.9", "fd00::1")
    assert found.extensions == ("subjectAltName",)


def test_a_serving_request_needs_an_address():
    with pytest.raises(CertificateError, match="node node-1 has no address"):
        csr.node_serving_request("node-1", KEY, names=Names(dns=("node-1",)))


@pytest.mark.parametrize(
    ("algorithm", "digest", "usages"),
    [
        ("ECDSA-P256", "ecdsa-with-SHA256", USAGES),
        ("ECDSA-P384", "ecdsa-with-SHA384", USAGES),
        ("RSA-2048", "sha256WithRSAEncryption", ["digital signature", "key encipherment", "client auth"]),
        ("RSA-3072", "sha384WithRSAEncryption", ["digital signature", "key encipherment", "client auth"]),
    ],
)
def test_signature_and_usages_follow_the_key(algorithm, digest, usages):
    from cryptography import x509

    key = keys.generate(algorithm)
    text = csr.node_client_request("node-1", key)

    assert x509.load_pem_x509_csr(text).signature_algorithm_oid._name == digest
    assert csr.node_client_usages(key) == usages
    assert csr.node_serving_usages(key) == [*usages[:-1], "server auth"]
    assert summaries.of_request(text).signature_valid


def test_an_unencodable_name_is_refused():
    with pytest.raises(CertificateError, match="cannot create a certificate request"):
        csr.request(KEY, common_name="x", names=Names(dns=("bücher",)))


def test_a_long_node_name_is_accepted():
    name = ".".join(["a" * 60] * 4)

    assert request_details.read(csr.node_client_request(name, KEY)).common_name == f"system:node:{name}"
