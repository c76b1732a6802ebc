"""Back up and restore a hub's state while it is in use.

Keys stay sealed in a copy: restoring needs the same sealing key.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from kubewright.base.errors import HostError
from kubewright.base.messages import quoted, reason_of
from kubewright.base.randomness import Random
from kubewright.base.records import replace
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import TAKEN_OVER, Event


def backup(store: SQLiteStore, target: Path) -> None:
    """Write a complete copy, readable only by its owner. Raises HostError if the file exists."""
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)  # left by a backup that was killed
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(part)) as copy:
            store.copy_to(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.link(part, target)  # fails if the file exists
    except FileExistsError as error:
        raise HostError(f"{target} already exists", remedy="choose another file") from error
    except (OSError, sqlite3.Error) as error:
        raise HostError(
            f"{target} cannot be written", detail=reason_of(error), remedy="check the directory and the space on its disk"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()


def restore(store: SQLiteStore, source: Path, *, key: bytes, random: Random, event: Event) -> None:
    """Replace the state by a copy, in one transaction.

    Raises HostError for an invalid copy, TrustError for one that another key has sealed. Later changes of the state are
    lost, as intended. A copy of an earlier format is converted, because an administrator has named it.
    """
    if not source.is_file():
        raise HostError(f"{source} does not exist", remedy="pass a file that `hub backup` has written")
    with TemporaryDirectory(dir=store.path.parent, prefix=".restoring-") as place:
        copy = Path(place) / "state.db"
        _copy(source, copy)
        with closing(SQLiteStore(copy, key=key, random=random, taking_over=replace(event, event=TAKEN_OVER))) as found:
            problem = found.problem()
            if problem:
                raise HostError(f"{source} is damaged", detail=quoted(problem), remedy="use another copy")
            found.read_everything()
            store.replace_by(found)
    store.add_event(event)


def _copy(source: Path, target: Path) -> None:
    """Copy a state without changing it. Raises HostError for a file that is not a hub's state."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as found, closing(sqlite3.connect(target)) as copy:
            if found.execute("PRAGMA user_version").fetchone()[0] < 1:
                raise HostError(f"{source} is not a copy of a hub's state", remedy="pass a file that `hub backup` has written")
            found.backup(copy)
    except (OSError, sqlite3.Error) as error:
        raise HostError(f"{source} cannot be read", detail=str(error), remedy="use another copy") from error
