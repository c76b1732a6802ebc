"""The manifest directory as a set of pods: readable and unreadable manifests with the reason, and notification of changes.

Changes are reported by inotify; if the kernel has no free instance, the directory is read five times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kubewright.base import yaml
from kubewright.base.errors import KubewrightError
from kubewright.base.records import dataclass, field
from kubewright.base.unexpected import keep_running
from kubewright.local.supervisor.decoding import read_pod
from kubewright.local.supervisor.pod import StaticPod

POLL_EVERY: Final = 0.2
"""Seconds between two reads of the directory without inotify."""
RESYNC_EVERY: Final = 20.0
"""Seconds between two reads with inotify, as in the kubelet (fileCheckFrequency): a network file system or a replaced directory sends no event."""

# inotify(7). Not IN_CREATE and IN_MODIFY: a file is read only after its writer has closed it.
_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x8, 0x40, 0x80, 0x200, 0x400, 0x800
_ONLYDIR: Final = 0x01000000
_MASK: Final = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR

MAX_BYTES: Final = 1 << 20
_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One file of the directory.

    It has a pod or a problem; `pod_name` is the last pod that was read from it, or the file's stem.
    """

    file: str
    pod_name: str
    pod: StaticPod | None = None
    problem: str = ""


@dataclass(frozen=True)
class _Version:
    inode: int
    size: int
    modified: int


@dataclass()
class ManifestDirectory:
    """Reads the directory repeatedly; decodes only files that changed."""

    directory: Path
    node: str
    _known: dict[str, tuple[_Version, Manifest]] = field(default_factory=dict)

    def scan(self) -> list[Manifest] | None:
        """Return one entry per manifest file, sorted by file name; None if the directory cannot be read, which does not mean that it is empty.

        A directory that does not exist has no manifests. If two files have the same pod, the second is a problem.
        """
        try:
            names = sorted(path.name for path in self.directory.iterdir() if is_manifest(path.name))
        except FileNotFoundError:
            names = []
        except OSError:
            return None
        found = [manifest for name in names if (manifest := self._one(name)) is not None]
        gone = set(self._known) - {manifest.file for manifest in found}
        for name in gone:
            del self._known[name]
        return _without_duplicates(found)

    def _one(self, name: str) -> Manifest | None:
        path = self.directory / name
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                return None
            version = _Version(inode=status.st_ino, size=status.st_size, modified=status.st_mtime_ns)
            known = self._known.get(name)
            if known is not None and known[0] == version:
                return known[1]
            manifest = self._read(path, known[1].pod_name if known else path.stem)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Manifest(file=name, pod_name=path.stem, problem=f"{name} cannot be read: {error.strerror}")
        self._known[name] = (version, manifest)
        return manifest

    def _read(self, path: Path, before: str) -> Manifest:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return Manifest(file=path.name, pod_name=before, problem=f"{path.name} is larger than {MAX_BYTES} bytes")
        try:
            pod = read_pod(yaml.load(content, source=path.name), source=path.name, node=self.node)
        except KubewrightError as error:
            return Manifest(file=path.name, pod_name=before, problem=one_line(error))
        return Manifest(file=path.name, pod_name=pod.name, pod=pod)


def is_manifest(name: str) -> bool:
    """Return whether a file is a manifest by its name.

    The kubelet reads all files that are not hidden; editors' copies and backups are skipped here.
    """
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def one_line(error: KubewrightError) -> str:
    """Return an error as one line."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


def _without_duplicates(found: list[Manifest]) -> list[Manifest]:
    first: dict[str, str] = {}
    result = []
    for manifest in found:
        if manifest.pod is not None and first.setdefault(manifest.pod.name, manifest.file) != manifest.file:
            other = first[manifest.pod.name]
            problem = f"{manifest.file} describes the pod {manifest.pod.name}, as {other} does; remove one of them"
            result.append(Manifest(file=manifest.file, pod_name=Path(manifest.file).stem, problem=problem))
        else:
            result.append(manifest)
    return result


class DirectoryWatch:
    """Calls `changed` soon after something in a directory changed, and periodically.

    constructed ── start() ──> watching ── stop() ──> stopped
    """

    def __init__(self, directory: Path, changed: Callable[[], None], *, inotify: bool = True) -> None:
        self._directory = directory
        self._changed = changed
        self._inotify = inotify
        self._fd = -1
        self._task: asyncio.Task[None] | None = None

    @property
    def uses_inotify(self) -> bool:
        """Whether the kernel sends events; otherwise the directory is polled."""
        return self._fd >= 0

    def start(self) -> None:
        """Start watching. Earlier changes are not reported: read the directory once after this."""
        if self._inotify:
            with contextlib.suppress(OSError):
                self._fd = _open()
        if self.uses_inotify:
            self._watch()
            asyncio.get_running_loop().add_reader(self._fd, self._drain)
        self._task = asyncio.create_task(keep_running("static pod manifests", self._resync, expected=()), name=f"watch {self._directory}")

    async def stop(self) -> None:
        """Stop watching; may be called more than once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        if self.uses_inotify:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 1 << 16):
                pass
        self._changed()

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_EVERY if self.uses_inotify else POLL_EVERY)
            if self.uses_inotify:
                self._watch()  # watching the same directory again changes nothing; a new one of the same name is watched from now on
            self._changed()

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            _add(self._fd, self._directory)


def _open() -> int:
    """Return a new inotify descriptor. Raises OSError, also if the C library cannot be loaded."""
    descriptor = int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    return _checked(descriptor)


def _add(descriptor: int, directory: Path) -> None:
    _checked(int(_libc().inotify_add_watch(descriptor, os.fsencode(directory), _MASK)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno() or errno.EINVAL
        raise OSError(number, os.strerror(number))
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
