"""`--rootfs`: another root directory for everything that a command does.

Python's modules lie outside of that directory. So whatever the command may need later is loaded before: also imports that stand in
functions, to keep other commands quick.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from kubewright.base.errors import HostError
from kubewright.workflow.phases import Phases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OURS: Final = "kubewright."
_HIDDEN: Final = ("_strptime", "unicodedata", "kubewright.cli.failure", "kubewright.base.masking")
"""What is imported where no statement says so: by the interpreter itself, or by our own last line of defence."""

_COMPANIONS: Final = {
    "cryptography": ("cryptography.hazmat.backends.openssl.backend", "cryptography.hazmat.primitives.serialization.ssh"),
    "urllib3": ("urllib3.util.ssl_match_hostname", "idna"),
    "jsonpatch": ("jsonpointer",),
    "grpc": ("grpc._channel",),
}
"""What libraries import in their own functions, if they are imported at all."""

_DATA: Final = {"kubewright.manifests.rbac": "bootstrap_policy_text", "kubewright.manifests.extra_arguments": "flag_table"}
"""Functions that read files of the package once, by their modules."""

_IMPORT: Final = re.compile(r"^[ \t]+(?:from ([\w.]+) import (?:\(\s*)?([\w \t,\n]+?)(?:\)|#|$)|import ([\w., \t]+))", re.MULTILINE)
"""An import that is indented, so that it runs later: the package and its names, or the modules."""

_NAME: Final = re.compile(r"kubewright(\.\w+)+:\w+")
"""A function as rows of tables name it."""

_FOR_TYPES: Final = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)


def enter(path: str, *, handler: str) -> None:
    """Load what a command may need and change the root directory. Raises HostError, saying why, where that fails."""
    preload((*_codecs(), handler.partition(":")[0], *_HIDDEN))
    try:
        os.chroot(path)
    except PermissionError as error:
        raise HostError(
            f"cannot change the root directory to {path}", detail="only root may do that", remedy="run the same command as root"
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise HostError(
            f"cannot change the root directory to {path}", detail=reason or "", remedy="give a directory that exists"
        ) from error
    os.chdir("/")


def preload(modules: Iterable[str]) -> None:
    """Import modules, and of our own ones also what their functions import."""
    waiting, done = list(modules), set()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        module = _imported(name)
        if module is not None and name.startswith(_OURS):
            waiting += _later(module)
            waiting += _named(module)
        if name in _DATA:
            getattr(module, _DATA[name])()
        waiting += [other for other in list(sys.modules) if other.startswith(_OURS) and other not in done]
        waiting += [other for library in _COMPANIONS if library in sys.modules for other in _COMPANIONS[library] if other not in done]


def _codecs() -> Iterator[str]:
    """Yield the modules of all encodings: `open`, `str.encode` and libraries look theirs up by name when they first need it."""
    import encodings
    import pkgutil

    yield from (f"encodings.{found.name}" for found in pkgutil.iter_modules(encodings.__path__))


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:  # an extra that is not installed, or a name that is no module
        return None


def _later(module: ModuleType) -> Iterator[str]:
    """Yield what the functions of a module import."""
    path = module.__file__ or ""
    if not path.endswith(".py"):
        return
    source = Path(path).read_text(encoding="utf-8")
    for package, names, plain in _IMPORT.findall(_FOR_TYPES.sub("", source)):
        if plain:
            yield from (name.split()[0] for name in plain.split(","))
        else:
            yield from _parts(package, [name.split()[0] for name in names.split(",") if name.strip()])


def _named(module: ModuleType) -> list[str]:
    """Return the modules that the tables of a module name, with all of their package; load what phases name, and what is made when asked for."""
    found = []
    for key, value in list(vars(module).items()):
        if isinstance(value, Phases):
            value.load()
        found += [] if key.startswith("__") else [text.partition(":")[0] for text in _texts(value) if _NAME.fullmatch(text)]
    if hasattr(module, "__getattr__"):
        for name in getattr(module, "__all__", ()):
            getattr(module, name)
    return found


def _texts(value: object, depth: int = 3) -> Iterator[str]:
    """Yield the texts in a table of rows, and in what a row holds."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part, depth - 1)
    elif depth and type(value).__module__.startswith(_OURS):
        for name in getattr(type(value), "__annotations__", ()):
            yield from _texts(getattr(value, name, None), depth - 1)


def _parts(package: str, names: list[str]) -> Iterator[str]:
    """Yield a package and those of its names that are modules. Others are looked up now: a package may make them when asked."""
    yield package
    module = _imported(package)
    for name in names:
        found: object = getattr(module, name, None)
        if found is None or isinstance(found, ModuleType):
            yield f"{package}.{name}"
