"""Cutting PEM text into blocks."""

from __future__ import annotations

import contextlib

import pytest
from counted import Counted
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import CertificateError
from kubewright.pki.encoding import pem
from kubewright.pki.encoding.pem import Block
from kubewright.pki.requests import request_details

LABELS = st.sampled_from(["CERTIFICATE", "RSA PRIVATE KEY", "PUBLIC KEY", "X509 CRL"])


@given(st.lists(st.tuples(LABELS, st.binary(max_size=200)), max_size=4))
def test_written_blocks_are_read_back(content):
    written = [Block(label, der) for label, der in content]

    assert pem.blocks(pem.join(written), source="file") == written


def test_lines_have_64_characters_and_the_last_one_ends():
    lines = pem.encode("CERTIFICATE", bytes(100)).split(b"\n")

    assert [len(line) for line in lines[1:-2]] == [64, 64, 8]
    assert lines[-1] == b""


@pytest.mark.parametrize("around", [b"%s", b"text before\n%s", b"%s\ntext after", b"\r\n\r\n%s\r\n", b"subject=/CN=x\n%sissuer=/CN=y\n"])
def test_text_around_blocks_is_skipped(around):
    block = pem.encode("CERTIFICATE", b"content")

    assert pem.blocks(around % block, source="file") == [Block("CERTIFICATE", b"content")]


def test_windows_line_ends_are_read():
    text = pem.encode("CERTIFICATE", bytes(100)).replace(b"\n", b"\r\n")

    assert pem.blocks(text, source="file") == [Block("CERTIFICATE", bytes(100))]


def test_header_lines_are_noticed_and_skipped():
    text = b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: X\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"

    assert pem.blocks(text, source="file") == [Block("RSA PRIVATE KEY", b"\0\0\0", headers=True)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"-----BEGIN CERTIFICATE-----\nAAAA=\n-----END CERTIFICATE-----\n", "not base64"),
        (b"-----BEGIN CERTIFICATE-----\nAA==\vAAAA\n-----END CERTIFICATE-----\n", "not base64"),
        (b"-----BEGIN CERTIFICATE-----\nA: b\n-----END CERTIFICATE-----\n", "holds only headers"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cut off"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA-----END CERTIFICATE-----\n", "cut off"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----x\n", "cut off"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END X-----\n-----END CERTIFICATE-----\n", "cut off"),
        (b"# -----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "BEGIN line"),
        (b"-----BEGIN CERTIFICATE\nAAAA\n-----END CERTIFICATE-----\n", "BEGIN line"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n", "cut off"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END PRIVATE KEY-----\n", "cut off"),
        (b"-----BEGIN CERTIFICATE-----\nA A!\n-----END CERTIFICATE-----\n", "not base64"),
    ],
)
def test_a_broken_block_is_an_error_that_names_the_file(text, reason):
    with pytest.raises(CertificateError, match=reason) as caught:
        pem.blocks(text, source="ca.crt")
    assert "ca.crt" in caught.value.what
    assert "ca.crt" in caught.value.remedy


NOISE = [
    b"-----END X-----\n",
    b"\n-----END CERTIFICATE REQUEST-----\n" * 3,
    pem.encode("CERTIFICATE", b""),
    pem.encode("CERTIFICATE", bytes(30)),
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----BEGIN CERTIFICATE-----\nA: b\n",
    b"-----BEGIN X-----\n\n-----END Y-----\n",
    b"\n-----BEGIN A",
    b"A: b\n",
    b" ",
]


@pytest.mark.parametrize("piece", NOISE)
@pytest.mark.parametrize("read", [lambda text: pem.blocks(text, source="file"), request_details.read], ids=["blocks", "request"])
def test_parsing_takes_linear_time(read, piece):
    """Counted, not timed: every byte that is copied, or passed over by a search."""
    request = pem.encode(pem.REQUEST, b"0")
    small, large = (_work(read, piece * count + request + piece * count) for count in (100, 400))
    assert large <= 5 * small
    assert large <= 12 * 800 * len(piece) + 20 * len(request)


def _work(read, text):
    counted = Counted(text)
    with contextlib.suppress(CertificateError):
        read(counted)
    return counted.work[0]


def test_content_stays_out_of_repr():
    assert "secret" not in repr(Block("PRIVATE KEY", b"secret"))
