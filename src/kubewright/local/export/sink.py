"""The directory to which a cluster is exported. Its files belong to the user who called sudo, and only this user can read them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kubewright.base.errors import HostError, KubewrightError, UsageError
from kubewright.base.events import Progress, Reporter
from kubewright.base.messages import one_line, quoted, reason_of
from kubewright.local.whole.owner import Owner, acting_as

_PROBLEMS = "problems.txt"


class Sink:
    """Writes files below a directory; parts that fail are noted, because a bug report is about a broken cluster.

    new ── open() ──> open ── write(), copy(), failed() ── close() ──> closed: the problems are in the directory
    """

    def __init__(self, directory: Path, *, owner: Owner | None, reporter: Reporter) -> None:
        self._directory = directory
        self._owner = owner
        self._reporter = reporter
        self.files: list[str] = []
        self.problems: list[str] = []

    def open(self) -> None:
        """Create the directory. Raises UsageError if it exists and is not empty, HostError if it cannot be made."""
        try:
            with acting_as(self._owner):
                self._directory.mkdir(mode=0o700, exist_ok=True)
                found = next(self._directory.iterdir(), None)
        except OSError as error:
            raise HostError(
                f"cannot write to {self._directory}",
                detail=reason_of(error),
                remedy="choose a directory in one that exists and that you can write to",
            ) from error
        if found is not None:
            raise UsageError(f"{quoted(str(self._directory))} is not empty", remedy="choose a directory that does not exist yet")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Report the start of a part unless another part contains it. A failure is noted, not raised."""
        if "/" not in name:
            self._reporter.emit(Progress(task=f"exporting {name}", done=0))
        try:
            yield
        except (KubewrightError, OSError, ValueError, KeyError) as error:
            self.failed(name, str(error))

    def failed(self, name: str, reason: str) -> None:
        """Note that a part is missing."""
        self.problems.append(one_line(f"{name}: {reason}"))

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        with self._created(name) as file:
            file.write(content)

    def copy(self, name: str, content: IO[bytes]) -> None:
        """Write a file with the rest of another."""
        with self._created(name) as file:
            shutil.copyfileobj(content, file)

    def close(self) -> None:
        """Write the problems to a file, if there are any."""
        if self.problems:
            self.write(_PROBLEMS, "".join(f"{problem}\n" for problem in self.problems).encode())

    def _created(self, name: str) -> IO[bytes]:
        path = self._directory / name
        with acting_as(self._owner):
            missing = [parent for parent in path.parents if not parent.exists()]
            for parent in reversed(missing):
                parent.mkdir(mode=0o700)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.files.append(name)
        return os.fdopen(descriptor, "wb")
