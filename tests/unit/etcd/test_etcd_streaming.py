"""The stream of a snapshot from a gRPC server on loopback: refusals, and connections that fail."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import pytest

from busy import reaches
from kubewright.base.errors import Unreachable
from kubewright.etcd import maintenance_pb2 as api
from kubewright.etcd import streaming
from kubewright.etcd.api import EtcdError, NoQuorum
from kubewright.etcd.client import EtcdClient
from snapshot_files import database, snapshot

CONTENT = snapshot(database(9))
Answer = Callable[[Any], Iterator[bytes]]


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    """Run a server that sends what `answer` yields, and provide its URL."""

    def stream(_: api.SnapshotRequest, context: Any) -> Iterator[api.SnapshotResponse]:
        return (api.SnapshotResponse(blob=blob) for blob in answer(context))

    method = grpc.unary_stream_rpc_method_handler(
        stream, request_deserializer=api.SnapshotRequest.FromString, response_serializer=api.SnapshotResponse.SerializeToString
    )
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[grpc.method_handlers_generic_handler("etcdserverpb.Maintenance", {"Snapshot": method})])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


def whole(_: Any) -> Iterator[bytes]:
    for at in range(0, len(CONTENT), 5000):
        yield CONTENT[at : at + 5000]


def received(endpoint: str, *, stall: float = streaming.STALL) -> bytes:
    return b"".join(streaming.pieces(endpoint, credentials=None, stall=stall))


def test_a_client_yields_the_file_in_the_pieces_that_arrive() -> None:
    with served(whole) as endpoint:
        pieces = list(EtcdClient([endpoint], credentials=None).snapshot(endpoint))
    assert (b"".join(pieces), len(pieces)) == (CONTENT, -(-len(CONTENT) // 5000))


@pytest.mark.parametrize("sent", [0, 2])
@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "etcdserver: server stopped", NoQuorum),
        (grpc.StatusCode.UNKNOWN, "snapshot: no space left on device", EtcdError),
        (grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", EtcdError),
    ],
)
def test_a_refusal_raises_its_error_class_also_in_the_middle(sent: int, code: grpc.StatusCode, said: str, kind: type[EtcdError]) -> None:
    def refuse(context: Any) -> Iterator[bytes]:
        yield from [b"x"] * sent
        context.abort(code, said)

    with served(refuse) as endpoint, pytest.raises(kind, match="refused to send a snapshot") as caught:
        received(endpoint)
    assert (type(caught.value), caught.value.detail) == (kind, said)


def test_a_server_without_snapshots_refuses() -> None:
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with pytest.raises(EtcdError, match="refused to send a snapshot"):
            received(f"http://127.0.0.1:{port}")
        server.stop(None).wait()


def test_a_port_without_a_listener_is_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # refuses connections, and nobody else gets the port
        port = unused.getsockname()[1]
        with pytest.raises(Unreachable, match=f"the connection to etcd at http://127.0.0.1:{port} was lost") as caught:
            received(f"http://127.0.0.1:{port}")
    assert "refused" in caught.value.detail.lower()


def test_a_server_that_accepts_a_connection_and_is_silent_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Unreachable, match="was lost"):
        received(f"http://127.0.0.1:{silent.getsockname()[1]}", stall=1)


@contextmanager
def freezing(endpoint: str, *, after: int) -> Iterator[str]:
    """Relay one connection until the server has sent so many bytes; afterwards it stays open, without traffic."""
    port = int(endpoint.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opened: list[socket.socket] = []

        def pump(source: socket.socket, target: socket.socket, most: int) -> None:
            passed = 0
            with suppress(OSError):
                while passed < most and (data := source.recv(4096)):
                    target.sendall(data)
                    passed += len(data)

        def relay() -> None:
            with suppress(OSError):
                client, server = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                opened.extend((client, server))
                threading.Thread(target=pump, args=(client, server, 1 << 40), daemon=True).start()
                pump(server, client, after)

        threading.Thread(target=relay, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for one in opened:
                one.close()


def test_a_stream_that_stalls_in_the_middle_is_given_up() -> None:
    with served(whole) as endpoint, freezing(endpoint, after=9000) as relayed, pytest.raises(Unreachable, match="was lost"):
        received(relayed, stall=1)


def test_a_slow_server_is_waited_for() -> None:
    def outlasts(stall: float) -> bool:
        pause = threading.Event()

        def slow(context: Any) -> Iterator[bytes]:
            for blob in whole(context):
                pause.wait(stall / 2)
                yield blob

        with served(slow) as endpoint:
            try:
                return received(endpoint, stall=stall) == CONTENT
            except Unreachable:  # a piece took that long
                return False

    reaches(outlasts)
