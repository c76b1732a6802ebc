"""One handshake shows whether a TLS server serves."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading

import pytest
import trustme

from busy import HANGS
from kubewright.http.tls import serves, serves_async


@pytest.fixture(params=["sync", "async"])
def ask(request):
    if request.param == "sync":
        return lambda address, port, within=HANGS: serves(address, port, within=within)
    return lambda address, port, within=HANGS: asyncio.run(serves_async(address, port, within=within))


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield opened


def test_a_closed_port_does_not_serve(ask):
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))  # refuses connections, and nobody else gets the port
        assert ask(*opened.getsockname()) is False


def test_an_open_port_without_tls_does_not_serve(ask, listener):
    assert ask(*listener.getsockname(), within=0.1) is False


def test_a_tls_server_serves(ask, listener):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, context.wrap_socket(connection, server_side=True):
            pass

    thread = threading.Thread(target=answer)
    thread.start()
    assert ask(*listener.getsockname()) is True
    thread.join(HANGS)
