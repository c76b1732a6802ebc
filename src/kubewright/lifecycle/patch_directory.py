"""The directory of patches: which of its files are read, who may write them, and the messages about it.

Source: kubeadm v1.36: util/patches/patches.go.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.errors import HostError, UsageError
from kubewright.base.events import Line, Reporter
from kubewright.host.readers import FileReader
from kubewright.host.seam import Host
from kubewright.host.states import FileState, Kind
from kubewright.manifests import patches
from kubewright.manifests.patches import NONE, Patch, Patches

Say = Callable[[str], None]
TOPIC: Final = "patches"
_OTHERS_WRITE: Final = 0o022
_WHY: Final = "anyone who can change a patch decides what the control plane runs"


def directory(configuration: Configuration) -> PurePosixPath | None:
    """Return the directory of a run's patches, None if there is none.

    A relative path starts at the working directory.
    """
    named = configuration.init.patches_directory
    return PurePosixPath(os.path.normpath(os.path.join(os.getcwd(), named))) if named else None  # noqa: PTH118, PTH109 - `..` as Go cleans it


def read(files: FileReader, configuration: Configuration, *, say: Say, user: int) -> Patches:
    """Read the patches of a run and report their files. `user` is the user's ID.

    Raises UsageError if the directory does not exist, HostError for one that others may write to, DocumentError for an
    invalid file.
    """
    place = directory(configuration)
    if place is None:
        return NONE
    say(f'Reading patches from "{place}"')
    known = patches.targets(configuration.cluster.kubernetes_version)
    items: list[Patch] = []
    used: list[str] = []
    ignored: list[str] = []
    for path in _files(files, place, user=user):
        name = patches.parse_name(path.name, known=known)
        content = b"" if name is None else _content(files, path, user=user)
        if name is None or not content:
            ignored.append(path.name)
            continue
        items += patches.read(name, content, source=str(path))
        used.append(path.name)
    if used:
        say(f"Using the patch files [{' '.join(used)}]")
    if ignored:
        say(f"Ignoring the files [{' '.join(ignored)}]: they are empty, or their names are not those of patches")
    return Patches(tuple(items))


def applying(host: Host, configuration: Configuration, *, reporter: Reporter) -> Callable[[str, Mapping[str, Any]], dict[str, Any]]:
    """Return a function that applies the patches of a target to a body, and reports each.

    It reads them at its first call, and raises as `read`.
    """

    def say(text: str) -> None:
        reporter.emit(Line(topic=TOPIC, text=text))

    @functools.cache
    def found() -> Patches:
        return read(host, configuration, say=say, user=host.facts.user)

    def patched(target: str, body: Mapping[str, Any]) -> dict[str, Any]:
        result = found().apply(target, body)
        for patch in found().of(target):
            say(f'Applied a patch of type "{patch.media_type}" to "{target}"')
        return result

    return patched


def _files(files: FileReader, place: PurePosixPath, *, user: int) -> Iterator[PurePosixPath]:
    """Yield all files below a directory in the order of a walk."""
    state = files.state(place)
    if state is None or state.kind is not Kind.DIRECTORY:
        raise UsageError(
            f"the patches cannot be read: {place} is {'not there' if state is None else f'a {state.kind.value}, not a directory'}",
            remedy="pass the directory with the patch files itself, not a link to it",
        )
    _require_ours(place, state, user=user)
    if fault := files.weakness(place):
        raise HostError(
            f"the patches in {place} are not used: {fault}", detail=_WHY, remedy="keep them in a directory that only root can write to"
        )
    for path in files.entries(place):
        found = files.state(path)
        if found is not None and found.kind is Kind.DIRECTORY:
            yield from _files(files, path, user=user)
        else:
            yield path


def _content(files: FileReader, path: PurePosixPath, *, user: int) -> bytes:
    state = files.state(path)
    if state is None or state.kind is not Kind.FILE:
        raise HostError(
            f"the patch {path} is {'gone' if state is None else f'a {state.kind.value}, not a file'}",
            detail="the target of a link may belong to another user",
            remedy="put the file itself there",
        )
    _require_ours(path, state, user=user)
    return files.read(path) or b""


def _require_ours(path: PurePosixPath, state: FileState, *, user: int) -> None:
    """Refuse files that users other than root and us may change: a patch decides what runs as root."""
    if state.owner not in {0, user}:
        raise HostError(
            f"the patches in {path} are not used: it belongs to user {state.owner}",
            detail=_WHY,
            remedy=f"chown root {path}",
        )
    if state.mode & _OTHERS_WRITE:
        raise HostError(
            f"the patches in {path} are not used: others may write to it (mode {state.mode:04o})",
            detail=_WHY,
            remedy=f"chmod go-w {path}",
        )
