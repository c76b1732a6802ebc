"""Certificate and key in one file."""

from __future__ import annotations

import pytest
from pki_kit import authority, leaf

from kubewright.base.errors import CertificateError, CertificateMismatch
from kubewright.pki import certificates, keys
from kubewright.pki.encoding import pem

CA = authority()
TEXT, KEY = leaf(CA)


def test_a_pair_is_written_certificate_first_and_read_back():
    both = certificates.join(TEXT, KEY.pem())

    found = certificates.parse_pair(both, source="current.pem")

    assert [block.label for block in pem.blocks(both, source="x")] == ["CERTIFICATE", "EC PRIVATE KEY"]
    assert found.pem() == both
    assert (found.leaf.common_name, found.key.public_der()) == ("somebody", KEY.public_der())


def test_the_order_in_the_file_does_not_matter():
    assert certificates.parse_pair(KEY.pem() + TEXT, source="current.pem").certificate_pem() == TEXT


def test_intermediates_are_kept():
    found = certificates.parse_pair(TEXT + CA.pem + KEY.pem(), source="current.pem")

    assert [certificate.common_name for certificate in found.certificates] == ["somebody", "kubernetes"]
    assert found.certificate_pem() == TEXT + CA.pem


def test_another_key_is_refused():
    with pytest.raises(CertificateMismatch, match=r"current\.pem do not match"):
        certificates.parse_pair(TEXT + keys.generate("ECDSA-P256").pem(), source="current.pem")


@pytest.mark.parametrize("text", [b"", TEXT, KEY.pem(), TEXT[:100]], ids=["nothing", "certificate", "key", "torn"])
def test_half_a_pair_is_an_error_that_names_the_file(text):
    with pytest.raises(CertificateError, match=r"current\.pem"):
        certificates.parse_pair(text, source="current.pem")


def test_a_pair_does_not_show_its_key():
    assert "PRIVATE" not in repr(certificates.parse_pair(TEXT + KEY.pem(), source="x"))
