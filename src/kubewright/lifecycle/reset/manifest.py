"""What the manifest of a static pod tells of its machine. Whatever wrote it: nothing in it is taken for granted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from kubewright.base import yaml
from kubewright.base.errors import DocumentError
from kubewright.base.records import dataclass
from kubewright.host.readers import FileReader


@dataclass(frozen=True, kw_only=True)
class StaticPod:
    """A manifest that could be read. `body` is what it holds."""

    body: Mapping[str, object]

    def argument(self, name: str) -> str:
        """Return the last value of an argument `--NAME=VALUE` of its first container, '' without it."""
        words = [word for key in ("command", "args") for word in _items(self._container.get(key)) if isinstance(word, str)]
        found = [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]
        return found[-1] if found else ""

    def host_path(self, volume: str) -> PurePosixPath | None:
        """Return the directory of the machine behind a volume; None where it names none, or no absolute one."""
        for one in map(_map, _items(self._spec.get("volumes"))):
            path = _map(one.get("hostPath")).get("path")
            if one.get("name") == volume and isinstance(path, str) and path.startswith("/"):
                return PurePosixPath(path)
        return None

    @property
    def user(self) -> int | None:
        """The number of the user that it runs as, None where it does not say."""
        found = _map(self._spec.get("securityContext")).get("runAsUser")
        return found if isinstance(found, int) else None

    @property
    def _spec(self) -> Mapping[str, object]:
        return _map(self.body.get("spec"))

    @property
    def _container(self) -> Mapping[str, object]:
        return next(map(_map, _items(self._spec.get("containers"))), {})


def read(files: FileReader, path: PurePosixPath) -> StaticPod | None:
    """Read a manifest; None where there is none. Raises DocumentError, naming the file, for one that is not a Pod."""
    content = files.read(path)
    if content is None:
        return None
    value = yaml.load(content, source=str(path))
    if not isinstance(value, dict) or value.get("kind") != "Pod":
        raise DocumentError(f"{path} is not the manifest of a Pod", remedy="restore it, or remove it")
    return StaticPod(body=value)


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []
