"""Bootstrap tokens as Secrets."""

from __future__ import annotations

import base64
import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.base.clock import FakeClock
from kubewright.base.durations import HOUR, Duration
from kubewright.base.errors import KubewrightError, UsageError, ValidationError
from kubewright.base.records import replace
from kubewright.tokens import BootstrapTokenString, secrets
from kubewright.tokens.secrets import StoredToken

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOKEN = BootstrapToken(token="abcdef.0123456789abcdef", ttl=Duration(24 * HOUR))


def made(**changes: object):

    return secrets.secret_object(replace(TOKEN, **changes), clock=FakeClock(NOW))


def content(secret):
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


def altered(**values: str):
    secret = made()
    secret["data"] |= {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return secret


def test_the_secret_equals_that_of_the_reference_cluster():
    assert made() == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "data": made()["data"],
    }
    assert content(made()) == {
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        "expiration": "2026-01-03T03:04:05Z",
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
    }


def test_the_proxy_token_of_kubeadm_certs_has_no_usages_and_no_groups():
    found = content(made(usages=(), groups=(), description="Proxy for managing TTL", ttl=Duration(2 * HOUR)))

    assert found == {
        "description": "Proxy for managing TTL",
        "expiration": "2026-01-02T05:04:05Z",
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
    }


@pytest.mark.parametrize("ttl", [None, Duration(0)])
def test_a_token_without_ttl_never_expires(ttl):
    secret = made(ttl=ttl)

    assert "expiration" not in secret["data"]
    assert not secrets.parse_secret(secret).expired(NOW + timedelta(days=36500))


def test_a_given_expiry_is_used():
    assert content(made(expires="2030-01-01T00:00:00Z", ttl=None))["expiration"] == "2030-01-01T00:00:00Z"


def test_an_invalid_token_gets_no_secret():
    with pytest.raises(UsageError):
        made(token="nonsense")


def test_a_secret_is_read_back():
    secret = made(description="mine", groups=("system:bootstrappers:a", "system:bootstrappers:b"))
    secret["metadata"]["uid"] = "some-uid"

    found = secrets.parse_secret(secret)

    assert found == StoredToken(
        token=BootstrapTokenString("abcdef", "0123456789abcdef"),
        description="mine",
        expiration="2026-01-03T03:04:05Z",
        usages=("authentication", "signing"),
        groups=("system:bootstrappers:a", "system:bootstrappers:b"),
    )
    assert found.uid == "some-uid"
    assert found.expires == NOW + timedelta(days=1)


def test_all_errors_are_reported_at_once_without_secrets():
    secret = altered(token_id="zzzzzz", token_secret="SECRET-TOO-LONG-FOR-ONE") | {"type": "Opaque"}
    secret["data"]["description"] = "***"

    with pytest.raises(ValidationError) as caught:
        secrets.parse_secret(secret)

    assert [error.path.text for error in caught.value.errors] == ["data.description", "type", "data.token-id", "data.token-secret"]
    assert "SECRET" not in str(caught.value)
    assert "bootstrap-token-abcdef" in caught.value.what


@pytest.mark.parametrize("name", ["", "bootstrap-token-", "bootstrap-token-ABCDEF", "other-abcdef", "bootstrap-token-abcdefg"])
def test_the_name_must_contain_the_id(name):
    secret = made()
    secret["metadata"]["name"] = name

    with pytest.raises(ValidationError, match=r"metadata\.name"):
        secrets.parse_secret(secret)


@pytest.mark.parametrize(
    ("expiration", "expired"),
    [
        ("", False),
        ("2026-01-02T03:04:05Z", True),
        ("2026-01-02T03:04:06Z", False),
        ("2026-01-02T03:04:05.5Z", False),
        ("2026-01-02T04:04:06+01:00", False),
        ("2026-01-02T04:04:05+01:00", True),
        ("2026-01-02", True),
        ("2027-01-02 03:04:05Z", True),
        ("2027-01-02T03:04:05", True),
        ("20270102T030405Z", True),
        ("2027-13-02T03:04:05Z", True),
        ("2027-01-02T03:04:60Z", True),
        ("2027-01-02T3:04:05Z", False),
        ("2026-01-02T3:04:05Z", True),
        ("2026-01-03T03:04:06+24:00", False),
        ("2027-01-02T03:04:05+25:00", True),
        ("2027-01-02T24:04:05Z", True),
        ("never", True),
    ],
)
def test_a_token_expires_in_time_and_an_unreadable_expiry_counts_as_expired(expiration, expired):
    found = secrets.parse_secret(altered(expiration=expiration))

    assert found.expired(NOW) is expired
    assert found.signs(NOW) is not expired


@pytest.mark.parametrize("value", ["True", "1", "yes", "", "true "])
def test_only_true_enables_a_usage(value):
    found = secrets.parse_secret(altered(usage_bootstrap_signing=value))

    assert found.usages == ("authentication",)
    assert not found.signs(NOW)


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2), max_leaves=4
)


@given(st.dictionaries(st.sampled_from(["type", "metadata", "data", "kind"]), JSON))
def test_no_object_raises_outside_the_tree(secret):
    with contextlib.suppress(KubewrightError):
        secrets.parse_secret(secret)


@given(st.sampled_from(sorted(made()["data"])), st.text(max_size=30))
def test_no_value_raises_outside_the_tree(key, value):
    secret = made()
    secret["data"][key] = value

    with contextlib.suppress(KubewrightError):
        found = secrets.parse_secret(secret)
        assert found.expired(NOW) in {True, False}
        assert replace(found, usages=()).signs(NOW) is False
