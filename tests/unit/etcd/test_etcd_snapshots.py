"""The verification of a snapshot, with synthetic content: in any pieces, and with any damage; hashes of members."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import DocumentError
from kubewright.etcd.api import Hash
from kubewright.etcd.client import EtcdClient
from kubewright.etcd.snapshots import Checker, Snapshot
from kubewright.http.messages import Response
from snapshot_files import database, snapshot


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
    with pytest.raises(DocumentError, match="FILE is not a complete snapshot") as caught:
        _judge(content)
    assert why in caught.value.detail
    assert caught.value.remedy


def _judge(content: bytes) -> Snapshot:
    checker = Checker("FILE")
    checker.take(content)
    return checker.finish()


class _Answering:
    """A transport of one endpoint. `asked` are the targets and bodies."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[tuple[str, object]] = []

    def request(self, method, target, /, *, body, **_: object):
        self.asked.append((target, json.loads(body)))
        return Response(status=200, body=self.answer)


def _client(transport: _Answering) -> EtcdClient:
    return EtcdClient(["https://one:2379"], credentials=None, transport=lambda _: transport)  # type: ignore[arg-type, return-value]


def test_hashes_and_leaders_are_asked_of_one_endpoint() -> None:
    transport = _Answering(b'{"header":{}, "hash":4178063679, "compact_revision":"-1", "hash_revision":"4"}')
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
