"""What a run has begun and finished: a hint for resuming and for clean-up, never the judge of what is ours.

A run that is repeated goes through all its phases again; looking at the machine makes those cheap that have nothing to do.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from kubewright.base.errors import DiskFull, HostError
from kubewright.base.records import asdict, dataclass, replace

SIZE_LIMIT: Final = 1024 * 1024
"""Bytes above which older records of the same phase are dropped."""


class Mark(enum.Enum):
    """What is recorded of a phase."""

    BEGUN = "begun"
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line of a journal. `time` is RFC 3339; `created` are the targets of changes that made something new."""

    workflow: str
    phase: str
    mark: Mark
    time: str
    created: tuple[str, ...] = ()


class JournalStore(Protocol):
    """Where records are kept, oldest first."""

    def append(self, record: Record, /) -> None:
        """Keep a record; it survives kill -9 from then on. Raises HostError."""
        ...

    def records(self) -> list[Record]:
        """Return what is kept."""
        ...


def unfinished(records: Iterable[Record]) -> list[str]:
    """Return the phases that were begun and not finished since, in the order of their beginning."""
    begun: dict[str, None] = {}
    for record in records:
        begun.pop(record.phase, None)
        if record.mark is Mark.BEGUN:
            begun[record.phase] = None
    return list(begun)


def created(records: Iterable[Record]) -> list[str]:
    """Return every target that finished phases made, in order, each once."""
    return list(dict.fromkeys(target for record in records for target in record.created))


class MemoryJournal:
    """Keeps records in memory: for tests and for plans."""

    def __init__(self) -> None:
        self._records: list[Record] = []

    def append(self, record: Record, /) -> None:
        self._records.append(record)

    def records(self) -> list[Record]:
        return list(self._records)


class HeldJournal:
    """Keeps records in memory until `release`, and then in the store that is made there: for a run that may be refused."""

    def __init__(self, make: Callable[[], JournalStore]) -> None:
        self._make = make
        self._store: JournalStore = MemoryJournal()
        self._released = False

    def release(self) -> None:
        """Write what was held, and everything from now on. Idempotent."""
        if not self._released:
            held, self._store, self._released = self._store.records(), self._make(), True
            for record in held:
                self._store.append(record)

    def append(self, record: Record, /) -> None:
        self._store.append(record)

    def records(self) -> list[Record]:
        return self._store.records()


class FileJournal:
    """Keeps records as JSON lines in a file (0600) whose directory exists.

    A line that a crash left incomplete is ignored when read. `durable` syncs every record, so that it survives a power cut as well.
    One process at a time may append: hold the lock of the machine or cluster.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable

    def append(self, record: Record, /) -> None:
        with _explaining(self._path):
            opened = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(opened).st_size
                torn = size > 0 and os.pread(opened, 1, size - 1) != b"\n"
                os.write(opened, b"\n" * torn + _line(record))
                if self._durable:
                    os.fsync(opened)
            finally:
                os.close(opened)
            if size > SIZE_LIMIT:
                self._compact()

    def records(self) -> list[Record]:
        with _explaining(self._path):
            try:
                lines = self._path.read_bytes().splitlines()
            except FileNotFoundError:
                return []
        return [record for line in lines if (record := _parse(line)) is not None]

    def _compact(self) -> None:
        """Replace the file by one that holds the latest records of each phase, with everything that was ever created."""
        temporary = self._path.with_name(f".{self._path.name}.new")
        temporary.unlink(missing_ok=True)
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.writelines(_line(record) for record in compacted(self.records()))
            file.flush()
            os.fsync(opened)
        temporary.replace(self._path)


def compacted(records: Sequence[Record]) -> list[Record]:
    """Keep the latest record of each workflow, phase and mark, in order; `created` gathers that of the dropped ones."""
    latest: dict[tuple[str, str, Mark], Record] = {}
    for record in records:
        key = (record.workflow, record.phase, record.mark)
        before = latest.pop(key, None)
        latest[key] = replace(record, created=tuple(created([before, record]))) if before else record
    return list(latest.values())


def _line(record: Record) -> bytes:
    import json  # runs without a journal on disk do without

    return json.dumps(asdict(record) | {"mark": record.mark.value}, sort_keys=True).encode() + b"\n"


def _parse(line: bytes) -> Record | None:
    """Read a line; None for one that is incomplete or not a record of ours."""
    import json

    try:
        fields = json.loads(line)
        return Record(**(fields | {"mark": Mark(fields["mark"]), "created": tuple(fields["created"])}))
    except (ValueError, KeyError, TypeError):
        return None


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise (DiskFull if full else HostError)(
            f"cannot use the journal {path}",
            detail=error.strerror or str(error),
            remedy=f"free some space (`df -h {path.parent}` shows it)" if full else f"look at it with `namei -l {path}`",
        ) from error
