"""Checks of files and directories: what an earlier cluster left stands in the way."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.preflight.model import Check, Finding, Subject, path_name

_RESET: Final = "remove what an earlier cluster left with `reset`, if it is not needed any more"


def available(path: PurePosixPath) -> Check:
    """A file that the command is going to write must not be there."""

    def find(subject: Subject) -> Iterable[Finding]:
        if subject.host.state(path) is not None:
            yield Finding(text=f"{path} already exists", remedy=_RESET)

    return Check(name=path_name("FileAvailable", path), find=find)


def empty(path: PurePosixPath) -> Check:
    """A directory for data must not hold somebody else's."""

    def find(subject: Subject) -> Iterable[Finding]:
        if subject.host.entries(path):
            yield Finding(text=f"{path} is not empty", remedy=_RESET)

    return Check(name=path_name("DirAvailable", path), find=find)


def existing(path: PurePosixPath, *, name: str) -> Check:
    """A file that the configuration names must be there."""

    def find(subject: Subject) -> Iterable[Finding]:
        if subject.host.state(path) is None:
            yield Finding(text=f"{path} doesn't exist", remedy="put it there, or name the right file in the configuration")

    return Check(name=name, find=find)
