"""From a kubeconfig to an access: the rows of the table at the top of `kube.kubeconfigs`."""

from __future__ import annotations

import base64
from pathlib import PurePosixPath

import pytest

from kubewright.apis.kubeconfig import parse
from kubewright.base import yaml
from kubewright.base.errors import CertificateError, UsageError, ValidationError
from kubewright.http.proxies import Proxy
from kubewright.kube.credentials import Access, Anonymous, BearerToken, ClientCertificate, Identity, Impersonation
from kubewright.kube.kubeconfigs import access_from_kubeconfig, default_paths, first_existing, load_access

HOME = PurePosixPath("/home/jane")
FILES = {
    PurePosixPath("/etc/x/ca.crt"): b"CA",
    PurePosixPath("/etc/x/pki/me.crt"): b"CERT",
    PurePosixPath("/abs/me.key"): b"KEY",
    PurePosixPath("/etc/x/token"): b" canary-token\n",
}


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def document(user: dict | None = None, **cluster: object) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "me@c",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": data(b"CA"), **cluster}}],
        "users": [{"name": "me", "user": user or {}}, {"name": "you", "user": {"token": "yours"}}],
        "contexts": [
            {"name": "me@c", "context": {"cluster": "c", "user": "me"}},
            {"name": "you@c", "context": {"cluster": "c", "user": "you"}},
        ],
    }


def access(found: dict, **options: object) -> Access:
    return access_from_kubeconfig(parse(found, source="admin.conf"), read=FILES.get, base=PurePosixPath("/etc/x"), **options)


IDENTITIES = [
    ({}, Anonymous()),
    ({"token": "t"}, BearerToken("t")),
    ({"tokenFile": "token", "token": "ignored"}, BearerToken("canary-token")),
    ({"client-certificate-data": data(b"CERT"), "client-key-data": data(b"KEY")}, ClientCertificate(cert_pem=b"CERT", key_pem=b"KEY")),
    ({"client-certificate": "pki/me.crt", "client-key": "/abs/me.key"}, ClientCertificate(cert_pem=b"CERT", key_pem=b"KEY")),
    ({"client-certificate": "pki/me.crt", "client-key": "/abs/me.key", "token": "t"}, ClientCertificate(cert_pem=b"CERT", key_pem=b"KEY")),
]


@pytest.mark.parametrize(("user", "identity"), IDENTITIES)
def test_credentials_of_a_user_are_read(user: dict, identity: Identity) -> None:
    found = access(document(user))
    assert found == Access(server="https://10.0.0.1:6443", ca_pem=b"CA", identity=identity)


def test_settings_of_a_cluster_are_read() -> None:
    cluster = {
        "certificate-authority-data": "",
        "certificate-authority": "ca.crt",
        "tls-server-name": "api.example",
        "proxy-url": "http://proxy:3128",
    }
    found = access(document({"as": "jane", "as-groups": ["a", "b"], "as-uid": "7"}, **cluster))
    assert found.ca_pem == b"CA"
    assert found.tls_server_name == "api.example"
    assert found.proxy == Proxy(url="http://proxy:3128")
    assert found.impersonation == Impersonation(user="jane", groups=("a", "b"), uid="7")
    insecure = access(document(**{"certificate-authority-data": "", "insecure-skip-tls-verify": True}))
    assert (insecure.ca_pem, insecure.verify) == (None, False)


def test_another_context_can_be_requested() -> None:
    assert access(document(), context="you@c").identity == BearerToken("yours")
    with pytest.raises(ValidationError):
        access(document(), context="nobody@c")


@pytest.mark.parametrize(
    ("user", "word"),
    [
        ({"exec": {"command": "canary", "apiVersion": "client.authentication.k8s.io/v1"}}, "exec"),
        ({"auth-provider": {"name": "oidc"}}, "auth-provider"),
        ({"username": "u", "password": "canary"}, "password"),
    ],
)
def test_unsupported_settings_are_refused(user: dict, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        access(document(user))
    assert word in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_plugin_runs_only_where_it_is_allowed() -> None:
    user = {"exec": {"command": "login"}}
    assert access(document(user), run_plugin=lambda spec: BearerToken(str(spec["command"]))).identity == BearerToken("login")


@pytest.mark.parametrize("user", [{"tokenFile": "token"}, {"client-certificate": "pki/me.crt", "client-key-data": data(b"KEY")}])
def test_a_kubeconfig_from_the_network_names_no_files(user: dict) -> None:
    with pytest.raises(UsageError):
        access_from_kubeconfig(parse(document(user)))
    with pytest.raises(UsageError):
        access_from_kubeconfig(parse(document(**{"certificate-authority-data": "", "certificate-authority": "/etc/passwd"})))


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(CertificateError) as caught:
        access(document({"tokenFile": "gone"}))
    assert "/etc/x/gone" in str(caught.value)


def test_a_token_cannot_break_out_of_its_header() -> None:
    with pytest.raises(CertificateError) as caught:
        access(document({"token": "canary\r\nx: y"}))
    assert "canary" not in str(caught.value)


def test_a_file_is_read_with_the_files_it_refers_to() -> None:
    path = PurePosixPath("/etc/x/admin.conf")
    text = yaml.dump(document({"tokenFile": "token"})).encode()
    assert load_access(path, read={**FILES, path: text}.get).identity == BearerToken("canary-token")
    with pytest.raises(CertificateError) as caught:
        load_access(PurePosixPath("/gone"), read=FILES.get)
    assert "/gone" in str(caught.value)


def test_the_kubeconfig_is_chosen_by_flag_environment_or_home() -> None:
    assert default_paths({}, home=HOME) == (HOME / ".kube/config",)
    assert default_paths({}, home=None) == ()
    assert default_paths({"KUBECONFIG": "/a::/b:/a"}, home=HOME) == (PurePosixPath("/a"), PurePosixPath("/b"))
    assert first_existing((PurePosixPath("/a"), PurePosixPath("/abs/me.key")), read=FILES.get) == PurePosixPath("/abs/me.key")
    with pytest.raises(CertificateError) as caught:
        first_existing((PurePosixPath("/a"), PurePosixPath("/b")), read=FILES.get)
    assert "/a, /b" in str(caught.value)
