"""Detached signatures of cluster-info."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.tokens import BootstrapTokenString, cluster_info, parse

KNOWN = json.loads((Path(__file__).parents[2] / "data" / "reference" / "vectors.json").read_text())["cluster_info_jws"]
JOSHUA = BootstrapTokenString("joshua", "my voice is my passcode")
ABCDEF = parse("abcdef.0123456789abcdef")


def test_the_signature_equals_that_of_the_reference_cluster():
    token = parse(KNOWN["token"])

    assert cluster_info.detached_signature(KNOWN["kubeconfig"], token) == KNOWN["jws-kubeconfig-abcdef"]
    assert cluster_info.verify_signature(KNOWN["jws-kubeconfig-abcdef"], KNOWN["kubeconfig"], token)


@pytest.mark.parametrize(
    ("token", "content", "signature"),
    [
        (ABCDEF, "apiVersion: v1\n", "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..K1chermAQEq0rdqy-ehj0VDfmA_ytv8Wzh9g26FldrE"),
        (ABCDEF, "", "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..MO2tlCpY1xB334qWeOe_XEv9c6DIMRNmKJZImOzY17k"),
        (
            JOSHUA,
            "Hello from the other side. I must have called a thousand times.",
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8",
        ),
        (JOSHUA, "", "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk"),
    ],
)
def test_known_signatures_are_reproduced(token, content, signature):
    """Detached signatures (RFC 7515, appendix F) with a token as the key, as bootstrapsigner makes them."""
    assert cluster_info.detached_signature(content, token) == signature


@given(st.text())
def test_a_signature_is_valid_only_for_its_content_and_token(content):
    signature = cluster_info.detached_signature(content, ABCDEF)

    assert cluster_info.verify_signature(signature, content, ABCDEF)
    assert not cluster_info.verify_signature(signature, f"{content} ", ABCDEF)
    assert not cluster_info.verify_signature(signature, content, BootstrapTokenString("abcdef", "0123456789abcdeg"))
    assert not cluster_info.verify_signature(signature, content, BootstrapTokenString("abcdeg", "0123456789abcdef"))


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "..",
        "eyJhbGciOiJub25lIn0..",
        KNOWN["jws-kubeconfig-abcdef"] + "=",
        KNOWN["jws-kubeconfig-abcdef"] + "\n",
        KNOWN["jws-kubeconfig-abcdef"].replace("..", "."),
        KNOWN["jws-kubeconfig-abcdef"][:-1],
        "é\ud800",
    ],
)
def test_another_form_of_signature_is_refused(signature):
    assert not cluster_info.verify_signature(signature, KNOWN["kubeconfig"], ABCDEF)


@given(st.text(alphabet=st.characters(codec=None)), st.text(alphabet=st.characters(codec=None)))
def test_no_text_raises(signature, content):
    assert not cluster_info.verify_signature(signature, content, ABCDEF)
