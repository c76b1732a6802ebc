"""The patches of the last run, kept on the machine: an upgrade without `--patches` uses them, so that earlier changes are not lost.

They are kept once a whole run has succeeded, so that patches with which no component runs are not reused. A list next to
them has their source and their hashes: a patch that was changed since, or a copy that was interrupted, is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.change import Change
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
        host.remove(host.layout.patches_list)
        return
    place = PurePosixPath(named)
    if not named:
        return
    if place == kept:
        list_files(host, source=named)
        return
    files = {path.relative_to(place): host.read(path) or b"" for path in _files(host, place)}
    for path in [path for path in _files(host, kept) if path.relative_to(kept) not in files]:
        host.remove(path)
    host.ensure(Directory(path=kept, mode=_PRIVATE, enforce=True))
    for name, content in files.items():
        host.ensure(File(path=kept / name, content=content, show=Show.SIZE, directory_mode=_PRIVATE))
    list_files(host, source=named)


def list_files(host: Host, *, source: str) -> Change:
    """Write the list of the kept patches, after the patches themselves. `source` is the directory that they come from."""
    document = {"source": source, "sha256": _digests(host)}
    return host.ensure(File(path=host.layout.patches_list, content=(json.dumps(document, indent=1) + "\n").encode(), show=Show.SIZE))


def changed(host: Host) -> list[str]:
    """Return the names of kept patches that are not as they were kept; none for those of earlier versions, which have no list."""
    content = host.read(host.layout.patches_list)
    if content is None:
        return []
    listed, found = _listed(content), _digests(host)
    return sorted(name for name in listed.keys() | found.keys() if listed.get(name) != found.get(name))


def _listed(content: bytes) -> Mapping[str, object]:
    """Return the hashes in a list; none for one that cannot be read, so that every patch counts as changed."""
    try:
        found = json.loads(content)["sha256"]
    except (ValueError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _digests(host: Host) -> dict[str, str]:
    kept = host.layout.patches
    return {str(path.relative_to(kept)): hashlib.sha256(host.read(path) or b"").hexdigest() for path in _files(host, kept)}


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
