"""TLS contexts: what they trust, what they refuse, and that keys never touch a disk."""

from __future__ import annotations

import ctypes
import os
import ssl
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import ScriptedServer

import other_user
from kubewright.base.errors import CertificateError, HostError
from kubewright.http import sync, tls
from kubewright.http.failures import NoAnswer, Reason
from kubewright.pki.encoding import pem

MakeServer = Callable[..., ScriptedServer]


def ask(server: ScriptedServer, context: ssl.SSLContext) -> int:
    transport = sync.Transport(server.url, context=context)
    try:
        return transport.request("GET", "/").status
    finally:
        transport.close()


def test_only_the_given_ca_is_trusted(ca_pem: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "other.pem"
    bundle.write_bytes(trustme.CA().cert_pem.bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys.log"))
    context = tls.client_context(ca_pem)
    assert len(context.get_ca_certs()) == 1
    assert context.keylog_filename is None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_bundle_may_contain_several_certificates_and_text(ca_pem: bytes) -> None:
    other = trustme.CA().cert_pem.bytes()
    text = "Größe: our CA\n".encode() + ca_pem + b"\n# and another\n" + other + ca_pem
    assert len(tls.client_context(text).get_ca_certs()) == 2


def test_an_intermediate_is_an_anchor_too(make_server: MakeServer) -> None:
    root = trustme.CA()
    middle = root.create_child_ca()
    leaf = middle.issue_cert("127.0.0.1")
    server = make_server(context=tls.server_context(leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()))
    assert ask(server, tls.client_context(middle.cert_pem.bytes())) == 200
    with pytest.raises(NoAnswer):
        ask(server, tls.client_context(root.cert_pem.bytes()))


def test_keys_are_passed_in_memory_only(ca_pem: bytes, client_pair: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = ssl.SSLContext.load_cert_chain

    def load(self: ssl.SSLContext, path: str, **options: object) -> None:
        opened.append(str(Path(path).readlink()))
        original(self, path, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    before = set(Path("/proc/self/fd").iterdir())
    tls.client_context(ca_pem, *client_pair)
    assert [path.startswith("/memfd:") for path in opened] == [True]
    assert set(Path("/proc/self/fd").iterdir()) - before == set()  # others may be closed meanwhile


def test_keys_load_in_a_process_that_is_not_dumpable(ca_pem: bytes, client_pair: tuple[bytes, bytes], readable: Path) -> None:
    user = other_user.uid()
    script = """
        import ctypes, sys
        ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
        from kubewright.http import tls
        contents = sys.stdin.buffer.read().split(b"=====")
        tls.client_context(*contents)
        print("loaded")
    """
    assert ctypes.sizeof(ctypes.c_int) == 4
    done = subprocess.run(
        [other_user.python(user), "-c", textwrap.dedent(script)],
        input=b"=====".join([ca_pem, *client_pair]),
        capture_output=True,
        check=False,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": other_user.library(user, readable / "library")},
        **other_user.becoming(user),
    )
    assert done.stdout == b"loaded\n", done.stderr.decode()


def broken(client_pair: tuple[bytes, bytes], other: tuple[bytes, bytes], ca_pem: bytes) -> dict[str, tuple[object, ...]]:
    certificate, key = client_pair
    return {
        "no CA": (None,),
        "empty CA": (b"",),
        "a key where the CA should be": (key,),
        "a broken CA": (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",),
        "a CA behind which something is cut off": (ca_pem + b"-----BEGIN CERTIFICATE-----\nAAAA\n",),
        "a CA with surplus padding": (pem.encode("CERTIFICATE", bytes(3)).replace(b"AAAA", b"AAAA=") + ca_pem,),
        "two CAs in one block": (pem.encode("CERTIFICATE", pem.certificates(ca_pem, source="x")[0] * 2),),
        "another key": (ca_pem, certificate, other[1]),
        "no key": (ca_pem, certificate, None),
        "no certificate": (ca_pem, None, key),
        "a broken key": (ca_pem, certificate, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        "swapped": (ca_pem, key, certificate[:30]),
    }


def test_unusable_files_are_reported(client_pair: tuple[bytes, bytes], other_client_pair: tuple[bytes, bytes], ca_pem: bytes) -> None:
    cases = broken(client_pair, other_client_pair, ca_pem)
    for arguments in cases.values():
        with pytest.raises(CertificateError) as caught:
            tls.client_context(*arguments)
        assert caught.value.remedy
        assert "PRIVATE" not in str(caught.value)
    assert len(cases) == 12


def test_an_encrypted_key_causes_no_prompt(ca_pem: bytes, client_pair: tuple[bytes, bytes]) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(client_pair[1], None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    with pytest.raises(CertificateError):
        tls.client_context(ca_pem, client_pair[0], encrypted)


@given(st.binary(max_size=200))
def test_no_pem_raises_an_error_outside_the_tree(text: bytes) -> None:
    for arguments in ((text,), (text, text, text)):
        with pytest.raises(CertificateError):
            tls.client_context(*arguments)


@pytest.mark.parametrize(
    ("clients", "shown", "status"),
    [
        (tls.Clients.NONE, True, 200),
        (tls.Clients.NONE, False, 200),
        (tls.Clients.OPTIONAL, True, 200),
        (tls.Clients.OPTIONAL, False, 200),
        (tls.Clients.REQUIRED, True, 200),
        (tls.Clients.REQUIRED, False, None),
    ],
)
def test_client_authentication_of_a_server_context(
    make_server: MakeServer,
    server_pair: tuple[bytes, bytes],
    client_pair: tuple[bytes, bytes],
    ca_pem: bytes,
    clients: tls.Clients,
    shown: bool,
    status: int | None,
) -> None:
    server = make_server(context=tls.server_context(*server_pair, client_ca_pem=ca_pem, clients=clients))
    context = tls.client_context(ca_pem, *(client_pair if shown else ()))
    if status is None:
        with pytest.raises(NoAnswer) as caught:
            ask(server, context)
        assert caught.value.reason in {Reason.TLS, Reason.RESET}
        return
    assert ask(server, context) == status
    assert server.seen[0].common_name == ("system:node:n1" if shown and clients is not tls.Clients.NONE else None)


def test_requesting_client_certificates_requires_a_ca(server_pair: tuple[bytes, bytes]) -> None:
    with pytest.raises(CertificateError):
        tls.server_context(*server_pair, clients=tls.Clients.OPTIONAL)


def test_a_client_of_another_ca_is_refused(make_server: MakeServer, server_pair: tuple[bytes, bytes], ca_pem: bytes) -> None:
    stranger = trustme.CA().issue_cert("x.example", common_name="system:admin")
    server = make_server(context=tls.server_context(*server_pair, client_ca_pem=ca_pem, clients=tls.Clients.OPTIONAL))
    with pytest.raises(NoAnswer):
        ask(server, tls.client_context(ca_pem, stranger.cert_chain_pems[0].bytes(), stranger.private_key_pem.bytes()))
    assert server.seen == []


def test_host_trust_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(trustme.CA().cert_pem.bytes())
    monkeypatch.setattr(tls, "SYSTEM_BUNDLES", (str(tmp_path / "missing"), str(bundle)))
    assert len(tls.host_context().get_ca_certs()) == 1
    monkeypatch.setattr(tls, "SYSTEM_BUNDLES", ())
    with pytest.raises(HostError) as caught:
        tls.host_context()
    assert "ca-certificates" in caught.value.remedy


def test_contexts_for_many_identities_are_cheap(ca_pem: bytes, client_pair: tuple[bytes, bytes]) -> None:
    import time

    start = time.process_time()
    for _ in range(100):
        tls.client_context(ca_pem, *client_pair)
    assert time.process_time() - start < 1.0  # 0.1 s here
