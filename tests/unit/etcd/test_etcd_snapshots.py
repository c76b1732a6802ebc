"""The stream of a snapshot and the verification of a file, with synthetic content: in any pieces, and with any damage."""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import DocumentError, Unreachable
from kubewright.etcd import snapshots
from kubewright.etcd.api import Hash, NoQuorum
from kubewright.etcd.client import EtcdClient
from kubewright.etcd.snapshots import Checker, Snapshot
from kubewright.http.messages import Response
from snapshot_files import database, snapshot


def gateway(content: bytes, *, piece: int = 700) -> bytes:
    """Return a snapshot as the gateway sends it."""
    blobs = [content[at : at + piece] for at in range(0, len(content), piece)]
    return b"".join(json.dumps({"result": {"blob": base64.b64encode(blob).decode()}}).encode() + b"\n" for blob in blobs)


@given(content=st.binary(max_size=3000), cuts=st.lists(st.integers(min_value=1, max_value=900), max_size=20), newline=st.booleans())
def test_a_stream_gives_the_same_content_in_any_pieces(content: bytes, cuts: list[int], newline: bool) -> None:
    sent, chunks = gateway(content), []
    sent = sent if newline else sent.rstrip(b"\n")
    for cut in cuts:
        chunks.append(sent[:cut])
        sent = sent[cut:]
    found = [snapshots.piece(value, source="one") for value in snapshots.messages([*chunks, sent], source="one")]
    assert b"".join(found) == content


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_no_stream_breaks_the_reader(chunks: list[bytes]) -> None:
    try:
        for value in snapshots.messages(chunks, source="one"):
            snapshots.piece(value, source="one")
    except Unreachable as error:
        assert error.remedy


def test_a_message_without_an_end_is_given_up() -> None:
    with pytest.raises(Unreachable, match="does not send a snapshot"):
        list(snapshots.messages([b"x" * (1 << 20)] * 9, source="one"))


@given(st.lists(st.integers(min_value=1, max_value=2000), max_size=12))
def test_a_whole_snapshot_is_recognized_in_any_pieces(cuts: list[int]) -> None:
    content, checker, at = snapshot(database(2)), Checker("FILE"), 0
    for cut in (*cuts, len(database(3))):
        piece = content[at : at + cut]
        assert checker.take(piece) == piece
        at += cut
    assert checker.finish() == Snapshot(size=len(content), sha256=hashlib.sha256(content[:-32]).hexdigest())


@given(at=st.integers(min_value=0, max_value=4096 + 31), bit=st.integers(min_value=0, max_value=7))
def test_any_flipped_bit_is_found(at: int, bit: int) -> None:
    content = bytearray(snapshot(database(1)))
    content[at] ^= 1 << bit
    with pytest.raises(DocumentError):
        _judge(bytes(content))


@given(st.integers(min_value=0, max_value=8192 + 31))
def test_any_cut_is_found(length: int) -> None:
    with pytest.raises(DocumentError):
        _judge(snapshot(database(2))[:length])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "does not begin as a database"),
        (b"\0" * 4096, "does not begin as a database"),
        (database(2), "the copy of a data directory"),
        (snapshot(database(2))[:-40], "it was cut off: it has 8184 bytes"),
        (database(2) + b"\0" * 32, "does not have the SHA-256 at its end"),
    ],
)
def test_damage_is_described(content: bytes, why: str) -> None:
    with pytest.raises(DocumentError, match="FILE is not a whole snapshot") as caught:
        _judge(content)
    assert why in caught.value.detail
    assert caught.value.remedy


def _judge(content: bytes) -> Snapshot:
    checker = Checker("FILE")
    checker.take(content)
    return checker.finish()


class _Streaming:
    """A transport of one endpoint. `asked` are the targets and bodies."""

    def __init__(self, *chunks: bytes, status: int = 200) -> None:
        self.chunks = chunks
        self.status = status
        self.asked: list[tuple[str, object]] = []
        self.closed = 0

    @contextmanager
    def stream(self, method, target, /, **_: object):
        try:
            yield _Body(self.status, self.chunks)
        finally:
            self.closed += 1

    def request(self, method, target, /, *, body, **_: object):
        self.asked.append((target, json.loads(body)))
        return Response(status=self.status, body=b"".join(self.chunks))


class _Body:
    def __init__(self, status, chunks) -> None:
        self.status = status
        self.chunks = lambda: iter(chunks)
        self.read = lambda: b"".join(chunks)


def _client(transport: _Streaming) -> EtcdClient:
    return EtcdClient(["https://one:2379"], context=None, transport=lambda _: transport)  # type: ignore[arg-type, return-value]


def test_a_client_yields_the_file_while_it_arrives() -> None:
    content = snapshot(database(1))
    transport = _Streaming(gateway(content))
    assert b"".join(_client(transport).snapshot("https://one:2379")) == content
    assert transport.closed == 1


def test_a_refused_snapshot_raises_the_error_class_of_the_refusal() -> None:
    refusal = json.dumps({"code": 14, "message": "etcdserver: server stopped"}).encode()
    with pytest.raises(NoQuorum, match="refused to send a snapshot"):
        list(_client(_Streaming(refusal, status=503)).snapshot("https://one:2379"))
    with pytest.raises(NoQuorum, match="refused to send a snapshot"):
        list(_client(_Streaming(b'{"error":' + refusal + b"}\n")).snapshot("https://one:2379"))
    with pytest.raises(Exception, match="refused to send a snapshot"):
        list(_client(_Streaming(b"<html>", status=404)).snapshot("https://one:2379"))


def test_hashes_and_leaders_are_asked_of_one_endpoint() -> None:
    transport = _Streaming(b'{"header":{}, "hash":4178063679, "compact_revision":"-1", "hash_revision":"4"}')
    found = _client(transport).hash("https://one:2379", revision=4)
    assert found == Hash(value=4178063679, revision=4, compact_revision=-1)
    _client(transport).move_leader("https://one:2379", 11)
    assert transport.asked == [("/v3/maintenance/hashkv", {"revision": "4"}), ("/v3/maintenance/transfer-leadership", {"targetID": "11"})]


def test_only_hashes_of_the_same_revisions_are_compared() -> None:
    one = Hash(value=1, revision=4, compact_revision=-1)
    assert one.differs(Hash(value=2, revision=4, compact_revision=-1))
    assert not one.differs(Hash(value=1, revision=4, compact_revision=-1))
    assert not one.differs(Hash(value=2, revision=5, compact_revision=-1))
    assert not one.differs(Hash(value=2, revision=4, compact_revision=3))
