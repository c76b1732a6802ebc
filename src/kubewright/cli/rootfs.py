"""`--rootfs`: another root directory for everything that a command does.

Python's modules are outside that directory. Therefore all of ours are imported before, including those that functions
import.
"""

from __future__ import annotations

import encodings
import importlib
import os
import pkgutil
import sys
from typing import TYPE_CHECKING, Final

import kubewright
from kubewright.base.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DAEMON_COMMANDS: Final = (
    "kubewright.cli.handlers.local", "kubewright.cli.handlers.machines", "kubewright.cli.handlers.controllers.csr_decisions",
    "kubewright.cli.handlers.controllers.run", "kubewright.cli.handlers.hub.run",
)  # fmt: skip
DAEMONS: Final = (
    "kubewright.local", "kubewright.machines", "kubewright.agent", "kubewright.fleet", "kubewright.kube.health", "kubewright.controllers.manager",
    "kubewright.cli.handlers.daemons", "kubewright.enrollment.hub.hub", "kubewright.enrollment.hub.tenants",
    "kubewright.enrollment.hub.telemetry", "kubewright.http.aio", "kubewright.http.loop", "kubewright.http.metrics", "kubewright.http.serving", *_DAEMON_COMMANDS,
)  # fmt: skip
"""Modules that only local clusters and daemons need, with all below them: they take as long to load as everything else."""
NEVER: Final = ("kubewright.testing", "kubewright.__main__")
"""Modules that no command needs."""

LATE: Final = (
    "_strptime", "unicodedata",  # by the interpreter itself
    "argparse", "asyncio", "base64", "calendar", "concurrent.futures.thread", "copy", "ctypes", "datetime", "decimal", "difflib", "email.utils",
    "gzip", "hmac", "ipaddress", "json", "logging", "random", "re", "select", "shlex", "shutil", "subprocess", "tarfile", "urllib.parse", "zlib",
    "cryptography.exceptions", "cryptography.hazmat.backends.openssl.backend", "cryptography.hazmat.primitives.asymmetric",
    "cryptography.hazmat.primitives.ciphers.aead", "cryptography.hazmat.primitives.serialization.ssh", "cryptography.x509.oid",
    "dns.exception", "dns.nameserver", "dns.resolver", "jsonpatch", "jsonpointer", "shtab", "yaml",
    "grpc._channel", "idna", "urllib3.util.ssl_match_hostname",  # by these libraries themselves
)  # fmt: skip
"""Modules that functions import: ours, the standard library's, and the libraries'."""

_DATA: Final = {"kubewright.manifests.rbac": "bootstrap_policy_text", "kubewright.manifests.extra_arguments": "flag_table"}
"""Functions that read files of the package once, by their modules."""


def enter(path: str, *, handler: str) -> None:
    """Import what a command may need and change the root directory. Raises HostError with the reason of a failure."""
    preload(handler)
    try:
        os.chroot(path)
    except PermissionError as error:
        raise HostError(
            f"cannot change the root directory to {path}", detail="only root may do that", remedy="run the same command as root"
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise HostError(
            f"cannot change the root directory to {path}", detail=reason or "", remedy="pass a directory that exists"
        ) from error
    os.chdir("/")


def preload(handler: str) -> None:
    """Import all modules that a command may need, and read the files of the package that it may need."""
    left_out = NEVER if handler.startswith(_DAEMON_COMMANDS) else (*NEVER, *DAEMONS)
    for name in (*LATE, *_codecs(), *modules(kubewright.__name__, left_out=left_out)):
        try:
            importlib.import_module(name)
        except ImportError:  # an extra that is not installed
            continue
    for name, function in _DATA.items():
        getattr(sys.modules[name], function)()


def modules(package: str, *, left_out: tuple[str, ...]) -> Iterator[str]:
    """Yield the names of all modules below a package, except some and those below them."""
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if found.name not in left_out:
            yield found.name
            if found.ispkg:
                yield from modules(found.name, left_out=left_out)


def _codecs() -> Iterator[str]:
    """Yield the modules of all encodings: `open`, `str.encode` and libraries import them by name when they first need them."""
    yield from (f"encodings.{found.name}" for found in pkgutil.iter_modules(encodings.__path__))
