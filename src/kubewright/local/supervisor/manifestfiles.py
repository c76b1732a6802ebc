"""The manifest directory as a set of pods: what can be read, and what cannot, and why."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from kubewright.base.errors import KubewrightError
from kubewright.base.records import dataclass, field
from kubewright.local.supervisor.pod import StaticPod
from kubewright.local.supervisor.reading import read_pod

MAX_BYTES: Final = 1 << 20
_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One file of the directory. It has a pod or a problem; `pod_name` is the last pod that was read from it, or the file's stem."""

    file: str
    pod_name: str
    pod: StaticPod | None = None
    problem: str = ""


@dataclass(frozen=True)
class _Stamp:
    inode: int
    size: int
    modified: int


@dataclass()
class ManifestFiles:
    """Reads the directory again and again; decodes only files that changed."""

    directory: Path
    node: str
    _seen: dict[str, tuple[_Stamp, Manifest]] = field(default_factory=dict)

    def scan(self) -> list[Manifest] | None:
        """Return one entry per manifest file, sorted by file name; None if the directory cannot be read at all, which means nothing.

        A directory that is not there has no manifests. Of two files with the same pod the second is a problem.
        """
        try:
            names = sorted(path.name for path in self.directory.iterdir() if is_manifest(path.name))
        except FileNotFoundError:
            names = []
        except OSError:
            return None
        found = [manifest for name in names if (manifest := self._one(name)) is not None]
        gone = set(self._seen) - {manifest.file for manifest in found}
        for name in gone:
            del self._seen[name]
        return _without_duplicates(found)

    def _one(self, name: str) -> Manifest | None:
        path = self.directory / name
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                return None
            stamp = _Stamp(inode=status.st_ino, size=status.st_size, modified=status.st_mtime_ns)
            known = self._seen.get(name)
            if known is not None and known[0] == stamp:
                return known[1]
            manifest = self._read(path, known[1].pod_name if known else path.stem)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Manifest(file=name, pod_name=path.stem, problem=f"{name} cannot be read: {error.strerror}")
        self._seen[name] = (stamp, manifest)
        return manifest

    def _read(self, path: Path, before: str) -> Manifest:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return Manifest(file=path.name, pod_name=before, problem=f"{path.name} is larger than {MAX_BYTES} bytes")
        try:
            pod = read_pod(_decode(content, path.name), source=path.name, node=self.node)
        except KubewrightError as error:
            return Manifest(file=path.name, pod_name=before, problem=one_line(error))
        return Manifest(file=path.name, pod_name=pod.name, pod=pod)


def is_manifest(name: str) -> bool:
    """Whether a file of this name counts. The kubelet takes every file that is not hidden; editors' copies and backups are left out here."""
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


def _decode(content: bytes, name: str) -> object:
    from kubewright.base import yaml

    return yaml.load(content, source=name)
