"""The patches of the last run, kept on the machine: an upgrade without `--patches` uses them, so that earlier changes are not lost.

They are kept once a whole run has succeeded, so that patches with which no component runs are not reused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.masking import mask
from kubewright.host.desired import Directory, File, Show
from kubewright.host.readers import FileReader
from kubewright.host.seam import Host
from kubewright.host.states import Kind

NONE: Final = "none"
"""The value of `--patches` that discards them."""
_PRIVATE: Final = 0o700


def chosen(host: Host, named: str) -> str:
    """Return the directory of patches to use: the named one, else that of the last run, '' for none."""
    kept = host.layout.patches
    if _forgets(host, named):
        return ""
    return named or (str(kept) if host.state(kept) is not None else "")


def difference(host: Host, named: str) -> str:
    """Return how the patches of a directory differ from those of the last run, as a diff with secrets masked.

    `named` is the run's option. '' if it was not given, if there are no earlier patches, and if they are the same.
    """
    kept = host.layout.patches
    if not named or PurePosixPath(named) == kept or host.state(kept) is None:
        return ""
    import difflib  # few runs are given other patches

    before, after = _texts(host, kept), {} if _forgets(host, named) else _texts(host, PurePosixPath(named))
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return "".join(
        "".join(difflib.unified_diff(before.get(name, []), after.get(name, []), f"{name} (last run)", f"{name} (this run)"))
        for name in names
    )


def _texts(host: Host, place: PurePosixPath) -> dict[str, list[str]]:
    contents = {str(path.relative_to(place)): (host.read(path) or b"").decode(errors="replace") for path in _files(host, place)}
    return {name: [f"{line}\n" for line in mask(text).splitlines()] for name, text in contents.items()}


def keep(host: Host, named: str) -> None:
    """Keep the patches of a successful run, or discard those of earlier ones if they are no longer wanted.

    `named` is the run's option, '' if it was not given: then the kept ones stay.
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
    """Return whether `none` was given: as a path, it would be relative to the working directory, where no such directory exists."""
    return PurePosixPath(named).name == NONE and host.state(PurePosixPath(named)) is None


def _files(files: FileReader, place: PurePosixPath) -> Iterator[PurePosixPath]:
    for path in files.entries(place):
        state = files.state(path)
        if state is not None and state.kind is Kind.DIRECTORY:
            yield from _files(files, path)
        else:
            yield path
