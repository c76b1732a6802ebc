"""The data directory of an etcd member while other data takes its place: what each directory is called, and how far that is.

Data is renamed, and removed only when other data has been proved to serve. What has been done is decided by looking at the directories.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from kubewright.base.records import dataclass
from kubewright.host.desired import Directory, Generated, Ownership
from kubewright.host.seam import Host
from kubewright.lifecycle.machine_record import MEMBER
from kubewright.workflow.phases import Step

_PRIVATE = 0o700


@dataclass(frozen=True, kw_only=True)
class DataSwap:
    """The directories of one operation: `member` is etcd's, `aside` has the data that was there, `staged` the data that takes its place.

    `staged` exists until the new data serves; it is empty as soon as its content is in place.
    """

    host: Host
    data: PurePosixPath
    label: str

    @property
    def member(self) -> PurePosixPath:
        """Where etcd has its data."""
        return self.data / MEMBER

    @property
    def aside(self) -> PurePosixPath:
        """Where the earlier data is kept."""
        return self.data / f"{MEMBER}.before-{self.label}"

    @property
    def staged(self) -> PurePosixPath:
        """Where the new data is made."""
        return self.data / f"new-{self.label}"

    @property
    def done(self) -> bool:
        """Whether the new data is in place: also after `finish`, if there was other data before."""
        if self.host.state(self.staged) is None:
            return self.host.state(self.aside) is not None and self.host.state(self.member) is not None
        return not self.host.entries(self.staged)

    def generate(self, made: Generated) -> Iterator[Step]:
        """Have the new data made, if that has not been done."""
        if self.host.state(self.staged) is None:
            yield self.host.ensure(made)

    def put(self) -> Iterator[Step]:
        """Put the new data in place of the old, which stays aside. etcd does not run."""
        if self.done:
            return
        if self.host.state(self.member) is not None:
            yield self.host.move(self.member, self.aside)
        found = self.host.state(self.data)
        yield self.host.move(self.staged / MEMBER, self.member)
        if found is not None and found.owner:  # an etcd that does not run as root
            yield self.host.ensure(Ownership(path=self.member, owner=found.owner, group=found.group, recursive=True))

    def clear(self) -> Iterator[Step]:
        """Put no data in place of the old, which stays aside. etcd does not run."""
        if self.done:
            return
        if self.host.entries(self.staged):  # a way back that was interrupted
            yield self.host.remove(self.staged, own=[self.staged])
        if self.host.state(self.member) is not None:
            yield self.host.move(self.member, self.aside)
        yield self.host.ensure(Directory(path=self.staged, mode=_PRIVATE))

    def back(self) -> Iterator[Step]:
        """Put the old data back, in the reverse order, and remove the new. etcd does not run. Data that took the place of none stays."""
        if self.done and self.host.state(self.aside) is not None and self.host.state(self.member) is not None:
            yield self.host.ensure(Directory(path=self.staged, mode=_PRIVATE))
            yield self.host.move(self.member, self.staged / MEMBER)
        if self.host.state(self.aside) is not None and self.host.state(self.member) is None:
            yield self.host.move(self.aside, self.member)
        yield from self.finish()

    def finish(self) -> Iterator[Step]:
        """Remove what is not needed any more once the new data serves. The old data stays."""
        for path in (self.staged, self.staged.with_name(f"{self.staged.name}.partial")):
            if self.host.state(path) is not None:
                yield self.host.remove(path, own=[path])
