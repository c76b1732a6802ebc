"""The join records of a hub: who has joined, with which names and VPN addresses, and who has left."""

from __future__ import annotations

from kubewright.apis.join_records import JoinRecord
from kubewright.apis.node_sources import JoinRecordsSource
from kubewright.base.errors import KubewrightError
from kubewright.controllers.serving.evidence import JOIN_RECORDS, Answer, Membership
from kubewright.controllers.serving.sources.interface import Question, RecordBook, Tools
from kubewright.pki import node_names

_CLIENT = "client"
"""The purpose of a node's client certificate in its record."""


class JoinRecords:
    """Asks the record of the requester's node, and whether names of the request are in another record."""

    def __init__(self, source: JoinRecordsSource, tools: Tools) -> None:
        self._source = source
        self._book: RecordBook = tools.records(source)
        self._version: int | None = None
        self._has_failed = False
        self._changes = 0

    async def changes(self) -> int:
        """Count changes of the records, also those that were seen by `ask`. Records that can be read again may have changed."""
        try:
            self._saw(await self._book.version())
        except KubewrightError:
            self._has_failed = True
        return self._changes

    async def ask(self, question: Question) -> Answer:
        try:
            found = await self._book.look_up(question.node, question.sans)
        except KubewrightError:
            self._has_failed = True
            raise
        self._saw(found.version)
        record, owners = found.record, found.owners
        own = record.held if record is not None else frozenset()
        held = frozenset(map(node_names.known_as, own))
        return Answer(
            source=JOIN_RECORDS,
            gives=question.sans & held,
            foreign={san: node for san, node in owners.items() if node != question.node},
            membership=self._membership(record, question),
        )

    async def close(self) -> None:
        await self._book.close()

    def _saw(self, version: int) -> None:
        if self._has_failed or self._version not in {None, version}:
            self._changes += 1
        self._version, self._has_failed = version, False

    def _membership(self, record: JoinRecord | None, question: Question) -> Membership:
        if record is None:
            return Membership.NO_RECORD if self._source.required else Membership.MEMBER
        if not record.active:
            return Membership.LEFT
        issued = {one.fingerprint for one in record.certificates if one.purpose == _CLIENT} | question.issued
        return Membership.OTHER_CREDENTIAL if self._source.credentials and question.credential not in issued else Membership.MEMBER
