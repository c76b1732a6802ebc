"""The patches of the last run, kept on the machine: an upgrade that names none uses them, so that a change that was made once is not lost.

They are kept once a whole run has succeeded, so that patches with which no component runs are not used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from kubewright.host.desired import Directory, File, Show
from kubewright.host.readers import FileReader
from kubewright.host.seam import Host
from kubewright.host.states import Kind

NONE: Final = "none"
"""What `--patches` is given to forget them."""
_PRIVATE: Final = 0o700


def chosen(host: Host, named: str) -> str:
    """Return the directory of patches that counts: the one that was named, else that of the last run, '' for none."""
    kept = host.layout.patches
    if _forgets(host, named):
        return ""
    return named or (str(kept) if host.state(kept) is not None else "")


def keep(host: Host, named: str) -> None:
    """Keep the patches of a run that has succeeded, or forget those of earlier ones where they were not wanted any more.

    `named` is what the run was given, '' where it was given nothing: then what is kept stays.
    """
    kept = host.layout.patches
    if _forgets(host, named):
        host.remove(kept)
        return
    place = PurePosixPath(named)
    if not named or place == kept:
        return
    files = {path.relative_to(place): host.read(path) or b"" for path in _files(host, place)}
    for path in [path for path in _files(host, kept) if path.relative_to(kept) not in files]:
        host.remove(path)
    host.ensure(Directory(path=kept, mode=_PRIVATE, enforce=True))
    for name, content in files.items():
        host.ensure(File(path=kept / name, content=content, show=Show.SIZE, directory_mode=_PRIVATE))


def _forgets(host: FileReader, named: str) -> bool:
    """Whether `none` was given: as a path it counts from the working directory, where no such directory is."""
    return PurePosixPath(named).name == NONE and host.state(PurePosixPath(named)) is None


def _files(files: FileReader, place: PurePosixPath) -> Iterator[PurePosixPath]:
    for path in files.entries(place):
        state = files.state(path)
        if state is not None and state.kind is Kind.DIRECTORY:
            yield from _files(files, path)
        else:
            yield path
