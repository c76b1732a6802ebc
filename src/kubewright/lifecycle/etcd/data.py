"""Replacing the data of an etcd member: the directories involved, and the steps.

Old data is renamed, never removed; new data is removed if it does not serve. The directories themselves show which
steps have been done.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from kubewright.base.records import dataclass
from kubewright.host.desired import PARTIAL, Directory, Generated, Ownership
from kubewright.host.seam import Host
from kubewright.lifecycle.machine_record import MEMBER
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import Checkpoint, State
from kubewright.workflow.phases import Step

_PRIVATE = 0o700


@dataclass(frozen=True, kw_only=True)
class DataSwap:
    """The directories of one operation: `member` is etcd's own, `aside` has the old data, `staged` the new data.

    `staged` exists until the operation is done; it is empty from the moment when its content is in place.
    """

    host: Host
    data: PurePosixPath
    label: str

    @property
    def member(self) -> PurePosixPath:
        """The data that etcd uses."""
        return self.data / MEMBER

    @property
    def aside(self) -> PurePosixPath:
        """The old data."""
        return self.data / f"{MEMBER}.before-{self.label}"

    @property
    def staged(self) -> PurePosixPath:
        """The new data, before it is in place."""
        return self.data / f"new-{self.label}"

    @property
    def done(self) -> bool:
        """Whether the new data is in place; also after `finish`, if there was old data."""
        if self.host.state(self.staged) is None:
            return self.host.state(self.aside) is not None and self.host.state(self.member) is not None
        return not self.host.entries(self.staged)

    def generate(self, made: Generated) -> Iterator[Step]:
        """Make the new data, unless it exists."""
        if self.host.state(self.staged) is None:
            yield self.host.ensure(made)

    def put(self) -> Iterator[Step]:
        """Put the new data in the place of the old data, which is kept. etcd must not be running."""
        if self.done:
            return
        found = [self.host.state(path) for path in (self.data, self.member, self.aside)]  # the first one may be a link
        users = [one for one in found if one is not None and one.owner]
        if users:  # an etcd that does not run as root could not read a member that is moved into place first
            yield self.host.ensure(Ownership(path=self.staged / MEMBER, owner=users[0].owner, group=users[0].group, recursive=True))
        if self.host.state(self.member) is not None:
            yield self.host.move(self.member, self.aside)
        yield self.host.move(self.staged / MEMBER, self.member)

    def clear(self) -> Iterator[Step]:
        """Put the old data aside, without new data. etcd must not be running."""
        if self.done:
            return
        if self.host.entries(self.staged):  # an interrupted `back` has left it
            yield self.host.remove(self.staged, own=[self.staged])
        if self.host.state(self.member) is not None:
            yield self.host.move(self.member, self.aside)
        yield self.host.ensure(Directory(path=self.staged, mode=_PRIVATE))

    def back(self) -> Iterator[Step]:
        """Put the old data back, and remove the new data.

        New data stays if there was no old data. etcd must not be running.
        """
        if self.done and self.host.state(self.aside) is not None and self.host.state(self.member) is not None:
            yield self.host.ensure(Directory(path=self.staged, mode=_PRIVATE))
            yield self.host.move(self.member, self.staged / MEMBER)
        if self.host.state(self.aside) is not None and self.host.state(self.member) is None:
            yield self.host.move(self.aside, self.member)
        yield from self.finish()

    def finish(self) -> Iterator[Step]:
        """Remove the directories for new data. The old data stays."""
        partial = [path for path in self.host.entries(self.data) if path.name.startswith(f"{self.staged.name}{PARTIAL}")]
        for path in (self.staged, *partial):
            if self.host.state(path) is not None:
                yield self.host.remove(path, own=[path])


def settled(host: Host, begun: Checkpoint, data: PurePosixPath) -> Iterator[Step]:
    """Let the kubelet start etcd and the API server after a restore that lost power, with the new data if that is in place.

    Otherwise the restore is taken back. It is not continued, because only its user can know what was written since.
    `begun` is the checkpoint of the restore, and `data` the directory of etcd's data.
    """
    swap = DataSwap(host=host, data=data, label=begun.directory.name)
    if swap.done:
        for one in begun.swaps:
            yield checkpoint.put_new(host, begun, one.target)
        return
    yield from swap.back()
    for one in begun.swaps:
        yield checkpoint.put_old(host, begun, one.target)
    checkpoint.finish(host, begun, State.ROLLED_BACK)
