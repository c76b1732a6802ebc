"""The etcd of plans: it reads a real cluster, and only records writes."""

from __future__ import annotations

from collections.abc import Generator

from kubewright.base.errors import Unreachable
from kubewright.base.records import replace
from kubewright.etcd.api import Alarm, Etcd, Hash, Member, MemberExists, MemberNotFound, Status, by_peer_url


class RecordingEtcd:
    """An overlay over a real cluster, or over nothing. Implements `api.Etcd`; `actions` are the writes in order."""

    def __init__(self, base: Etcd | None = None) -> None:
        self._base = base
        self._members: list[Member] | None = None
        self.actions: list[tuple[str, str]] = []
        """A verb and the member: `add`, `promote`, `remove`, `lead`."""

    def members(self, *, agreed: bool = True) -> list[Member]:
        if self._members is None:
            self._members = list(self._base.members(agreed=agreed)) if self._base is not None else []
        return list(self._members)

    def statuses(self) -> list[Status]:
        return self._base.statuses() if self._base is not None else []

    def status(self, endpoint: str, /) -> Status:
        return self._base.status(endpoint) if self._base is not None else Status(endpoint=endpoint, problem="it does not exist")

    def reach(self, peer_url: str, /) -> str:
        return self._base.reach(peer_url) if self._base is not None else ""

    def alarms(self) -> list[Alarm]:
        return self._base.alarms() if self._base is not None else []

    def hash(self, endpoint: str, /, *, revision: int = 0) -> Hash:
        return self._real(endpoint).hash(endpoint, revision=revision)

    def keys(self, endpoint: str, prefix: str, /) -> list[str]:
        return self._real(endpoint).keys(endpoint, prefix)

    def snapshot(self, endpoint: str, /) -> Generator[bytes, None, None]:
        return self._real(endpoint).snapshot(endpoint)

    def move_leader(self, endpoint: str, target: int, /) -> None:
        self.actions.append(("lead", self._find(target).shown))

    def add_learner(self, peer_url: str, /) -> list[Member]:
        found = self.members()
        if by_peer_url(found, peer_url) is not None:
            raise MemberExists(f"a member at {peer_url} exists")
        made = Member(id=1 + max((member.id for member in found), default=0), peer_urls=(peer_url,), learner=True)
        return self._record("add", made, [*found, made])

    def promote(self, member_id: int, /) -> list[Member]:
        one = self._find(member_id)
        return self._record("promote", one, [replace(m, learner=False) if m is one else m for m in self.members()])

    def remove(self, member_id: int, /) -> list[Member]:
        one = self._find(member_id)
        return self._record("remove", one, [member for member in self.members() if member is not one])

    def close(self) -> None:
        if self._base is not None:
            self._base.close()

    def _real(self, endpoint: str) -> Etcd:
        if self._base is None:
            raise Unreachable(f"no etcd is at {endpoint}")
        return self._base

    def _find(self, member_id: int) -> Member:
        found = next((member for member in self.members() if member.id == member_id), None)
        if found is None:
            raise MemberNotFound(f"there is no member {member_id:x}")
        return found

    def _record(self, verb: str, member: Member, members: list[Member]) -> list[Member]:
        self.actions.append((verb, member.shown))
        self._members = members
        return self.members()
