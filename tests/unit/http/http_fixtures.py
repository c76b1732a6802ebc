"""Certificates and servers for tests of everything that speaks HTTP. Imported by the conftest of each folder that needs it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator

import pytest
import trustme
from scripted_server import ScriptedServer

# The looptime plugin requests the current loop around synchronous tests too; Python 3.11 creates one, and nothing
# closes it, unless the policy has once been told that there is none.
asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_pem(authority: trustme.CA) -> bytes:
    return authority.cert_pem.bytes()


@pytest.fixture(scope="session")
def server_pair(authority: trustme.CA) -> tuple[bytes, bytes]:
    leaf = authority.issue_cert("127.0.0.1", "localhost")
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems), leaf.private_key_pem.bytes()


@pytest.fixture(scope="session")
def client_pair(authority: trustme.CA) -> tuple[bytes, bytes]:
    leaf = authority.issue_cert("client.example", common_name="system:node:n1", organization_name="system:nodes")
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems), leaf.private_key_pem.bytes()


@pytest.fixture(scope="session")
def other_client_pair(authority: trustme.CA) -> tuple[bytes, bytes]:
    leaf = authority.issue_cert("client.example", common_name="system:node:n2", organization_name="system:nodes")
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems), leaf.private_key_pem.bytes()


@pytest.fixture(scope="session")
def server_tls(server_pair: tuple[bytes, bytes], ca_pem: bytes) -> ssl.SSLContext:
    from kubewright.http import tls

    return tls.server_context(*server_pair, client_ca_pem=ca_pem, clients=tls.Clients.OPTIONAL)


@pytest.fixture
def make_server(server_tls: ssl.SSLContext) -> Iterator[Callable[..., ScriptedServer]]:
    """Make servers with TLS; `context=None` for one without."""
    made: list[ScriptedServer] = []

    def make(handler=None, *, context: ssl.SSLContext | None = server_tls) -> ScriptedServer:
        server = ScriptedServer(context=context)
        if handler is not None:
            server.handler = handler
        made.append(server)
        return server

    yield make
    for server in made:
        server.stop()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
