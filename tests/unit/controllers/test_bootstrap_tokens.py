"""bootstrapsigner and tokencleaner: which tokens sign, when cluster-info is written, when a Secret is deleted.

kube-controller-manager v1.36: pkg/controller/bootstrap
"""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from controllers_kit import NOW

from kubewright.base.clock import rfc3339
from kubewright.controllers import bootstrap
from kubewright.controllers.bootstrap import Delete, LookAgain, Update
from kubewright.controllers.requests import Nothing

TEXT = "apiVersion: v1\n"
SIGNED = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..K1chermAQEq0rdqy-ehj0VDfmA_ytv8Wzh9g26FldrE"
AT = NOW.replace(microsecond=0)
SECOND = timedelta(seconds=1)


GONE = Delete(uid="uid-7", version="9")


def secret(id_="abcdef", *, name=None, type_="bootstrap.kubernetes.io/token", **values: str | bytes | None) -> dict:
    content = {"token-id": id_, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"}
    content |= {key.replace("_", "-"): value for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": type_,
        "metadata": {"name": name or f"bootstrap-token-{id_}", "namespace": "kube-system", "uid": "uid-7", "resourceVersion": "9"},
        "data": {key: base64.b64encode(_bytes(value)).decode() for key, value in content.items() if value is not None},
    }


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def config_map(**data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "resourceVersion": "5"}, "data": data}


def signed(found, *secrets: dict):
    return bootstrap.signatures(found, secrets, now=AT)


def test_a_signing_token_adds_its_signature():
    made = signed(config_map(kubeconfig=TEXT, other="stays"), secret())
    assert isinstance(made, Update)
    assert made.config_map["data"] == {"kubeconfig": TEXT, "other": "stays", "jws-kubeconfig-abcdef": SIGNED}
    assert made.config_map["metadata"]["resourceVersion"] == "5"


def test_a_token_with_any_text_signs_as_in_kube_controller_manager():
    text = "Hello from the other side. I must have called a thousand times."
    made = signed(config_map(kubeconfig=text), secret("joshua", token_secret="my voice is my passcode"))
    expected = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
    assert made.config_map["data"]["jws-kubeconfig-joshua"] == expected


@pytest.mark.parametrize(
    "found",
    [
        secret(usage_bootstrap_signing="True"),
        secret(usage_bootstrap_signing=None),
        secret(token_id="abcdeg"),
        secret(token_id=None),
        secret(token_secret=""),
        secret(token_secret=None),
        secret(token_secret=b"0123456789abcde\xff"),
        secret(type_="Opaque"),
        secret(name="abcdef"),
        secret("ABCDEF"),
        secret("abcdefg"),
        secret(expiration=rfc3339(AT)),
        secret(expiration="tomorrow"),
        secret(expiration=b"2036-01-02T03:04:05Z\xff"),
    ],
)
def test_a_token_that_may_not_sign_has_no_signature(found):
    left_over = config_map(kubeconfig=TEXT, **{"jws-kubeconfig-abcdef": SIGNED})
    assert isinstance(signed(config_map(kubeconfig=TEXT), found), Nothing)
    assert signed(left_over, found).config_map["data"] == {"kubeconfig": TEXT}


def test_nothing_is_written_if_everything_is_right():
    assert isinstance(signed(config_map(kubeconfig=TEXT, **{"jws-kubeconfig-abcdef": SIGNED}), secret()), Nothing)


def test_another_text_and_another_secret_change_the_signature():
    right = {"jws-kubeconfig-abcdef": SIGNED}
    assert isinstance(signed(config_map(kubeconfig="kind: Config\n", **right), secret()), Update)
    assert isinstance(signed(config_map(kubeconfig=TEXT, **right), secret(token_secret="fedcba9876543210")), Update)


@pytest.mark.parametrize("found", [None, config_map(), config_map(**{"jws-kubeconfig-abcdef": "old"})])
def test_without_a_text_nothing_is_done(found):
    assert isinstance(signed(found, secret()), Nothing)


def test_an_empty_text_is_signed():
    assert isinstance(signed(config_map(kubeconfig=""), secret()), Update)


@pytest.mark.parametrize(
    ("expiration", "expected"),
    [
        (rfc3339(AT - SECOND), GONE),
        (rfc3339(AT), GONE),
        (rfc3339(AT + 90 * SECOND), LookAgain(after=90.0)),
        ("garbage", GONE),
        ("2026-01-02 03:04:05Z", GONE),
        (b"2036-01-02T03:04:05Z\xff", GONE),
    ],
)
def test_expired_tokens_are_deleted(expiration, expected):
    assert bootstrap.expiry(secret(expiration=expiration), now=AT) == expected


@pytest.mark.parametrize("found", [secret(), secret(expiration=""), secret(type_="Opaque", expiration="garbage")])
def test_tokens_that_do_not_expire_stay(found):
    assert isinstance(bootstrap.expiry(found, now=AT), Nothing)


def test_an_expired_secret_with_an_invalid_token_is_deleted_too():
    assert bootstrap.expiry(secret(name="bootstrap-token-else", token_secret="x", expiration="garbage"), now=AT) == GONE
