"""Removing trees of files, within one mount and without following links."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, field, replace
from kubewright.host.failures import explaining
from kubewright.host.trees import Failed, Work, fail, visit

NAMED: Final = 8
"""How many things that could not be removed are named."""


def _unlink(parent: int, name: str) -> None:
    os.unlink(name, dir_fd=parent)


def _rmdir(parent: int, name: str) -> None:
    os.rmdir(name, dir_fd=parent)


_REMOVE: Final = Work(doing="remove", leaf=_unlink, directory=_rmdir, one_mount=True)
_REMOVE_OURS: Final = replace(_REMOVE, ours=True)


def remove_entry(parent: int, name: str, path: PurePosixPath, *, failed: Failed) -> bool:
    """Remove an entry of an open directory with everything below it; says whether it is gone. One that is gone already is fine.

    What is mounted in it is told as failed, and nothing of that is removed.
    """
    return visit(parent, name, path, work=_REMOVE, failed=failed)


def remove_tree(path: PurePosixPath) -> None:
    """Remove a file, a link or a tree that we made where nobody else may write: neither the way to it nor what is in it needs a check.

    What a machine has in its directories is for `Files.remove`. Raises HostError at the first thing that stays. One that is gone already is fine.
    """
    with explaining("remove", path), suppress(FileNotFoundError):
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            visit(parent, path.name, path, work=_REMOVE_OURS, failed=fail)
        finally:
            os.close(parent)


@dataclass(kw_only=True)
class Refusals:
    """What could not be removed: the first few, and how many there are. A disk that turned read-only may refuse millions."""

    first: list[HostError] = field(default_factory=list)
    count: int = 0

    def note(self, error: HostError) -> None:
        """Take one more."""
        self.count += 1
        if len(self.first) < NAMED:
            self.first.append(error)

    def require_none(self, path: PurePosixPath) -> None:
        """Raise HostError that names what is left in a directory, if there is anything."""
        if self.count:
            more = [f"and {self.count - len(self.first)} more"] if self.count > len(self.first) else []
            remedies = dict.fromkeys(error.remedy for error in self.first if error.remedy)
            detail = "\n".join([*map(str, self.first), *more])
            raise HostError(f"{path} is not empty", detail=detail, remedy=next(iter(remedies), ""))
