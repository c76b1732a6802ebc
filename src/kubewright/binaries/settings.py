"""The settings of the sources of binaries, from environment variables and flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from kubewright.base.errors import UsageError
from kubewright.base.homes import expanded
from kubewright.base.messages import quoted, shown_url
from kubewright.base.records import dataclass, field

DIRECTORY_FLAG: Final = "binaries-dir"
VERSION_FLAG: Final = "kubernetes-version"
DIRECTORY_VARIABLE: Final = "KUBEWRIGHT_BINARIES_DIR"
CACHE_VARIABLE: Final = "KUBEWRIGHT_CACHE_DIR"
MIRRORS_VARIABLE: Final = "KUBEWRIGHT_MIRRORS"
PROXY_VARIABLE: Final = "KUBEWRIGHT_PROXY"
OFFLINE_VARIABLE: Final = "KUBEWRIGHT_OFFLINE"
NO_BUILD_VARIABLE: Final = "KUBEWRIGHT_NO_BUILD"
TREE_VARIABLE: Final = "KUBEWRIGHT_MACHINE_TREE"

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_TRUTH: Final = {"1": True, "true": True, "yes": True, "on": True, "": False, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, kw_only=True)
class BinarySources:
    """The sources of binaries.

    The order is fixed: `directory`, `cache`, download (mirrors, then the primary host), build.
    """

    cache: Path
    """Root of the cache; programs are at VERSION/ARCHITECTURE/NAME below it."""
    directory: Path | None = None
    mirrors: tuple[str, ...] = ()
    """Addresses below which a file of `https://HOST/PATH` is at `HOST/PATH`."""
    allow_download: bool = True
    allow_build: bool = True
    offline: bool = False
    """No network access: no download, and a build only from modules that are already present."""
    proxy: str | None = field(default=None, repr=False)
    """Proxy for downloads; None uses HTTPS_PROXY and NO_PROXY of the environment, '' none.

    It may contain a password.
    """
    machine_tree: str = ""
    """Address and digest (`https://HOST/PATH#sha256=HEX`) of a file with the parts of whole machines, '' for none."""
    flags: frozenset[str] = frozenset()
    """The flags of the command, which errors may name."""

    @property
    def directory_setting(self) -> str:
        """The setting that names the directory, for errors."""
        return f"--{DIRECTORY_FLAG} or {DIRECTORY_VARIABLE}" if DIRECTORY_FLAG in self.flags else DIRECTORY_VARIABLE


def sources_from(
    environment: Mapping[str, str],
    *,
    directory: str | Path | None = None,
    cache: str | Path | None = None,
    mirrors: tuple[str, ...] | None = None,
    allow_download: bool | None = None,
    allow_build: bool | None = None,
    proxy: str | None = None,
    flags: frozenset[str] = frozenset(),
) -> BinarySources:
    """Read the settings; a flag that is given (not None) takes precedence over its environment variable.

    `flags` is that of `BinarySources`. Raises UsageError for an invalid value, naming the variable or flag.
    """
    offline = _flag(environment, OFFLINE_VARIABLE)
    chosen = directory if directory is not None else environment.get(DIRECTORY_VARIABLE) or None
    listed = mirrors if mirrors is not None else tuple(part for part in re.split(r"[,\s]+", environment.get(MIRRORS_VARIABLE, "")) if part)
    through = proxy if proxy is not None else environment.get(PROXY_VARIABLE)
    return BinarySources(
        cache=Path(cache) if cache is not None else default_cache(environment),
        directory=expanded(chosen).absolute() if chosen is not None else None,
        mirrors=tuple(_mirror(mirror) for mirror in listed),
        allow_download=(not offline) if allow_download is None else allow_download,
        allow_build=(not _flag(environment, NO_BUILD_VARIABLE)) if allow_build is None else allow_build,
        offline=offline and not allow_download,
        proxy=_proxy(through) if through else through,
        machine_tree=_tree(tree) if (tree := environment.get(TREE_VARIABLE, "")) else "",
        flags=flags,
    )


def default_cache(environment: Mapping[str, str]) -> Path:
    """Return the cache's root: KUBEWRIGHT_CACHE_DIR, else below XDG_CACHE_HOME (which must be absolute) or ~/.cache.

    Raises UsageError if none of them is set.
    """
    if chosen := environment.get(CACHE_VARIABLE):
        return expanded(chosen).absolute() / "binaries"
    xdg = environment.get("XDG_CACHE_HOME", "")
    if xdg.startswith("/"):
        return Path(xdg) / "kubewright" / "binaries"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "kubewright" / "binaries"
    raise UsageError("there is no directory for the cache of binaries", remedy=f"set HOME, XDG_CACHE_HOME or {CACHE_VARIABLE}")


def _flag(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "").strip().lower()
    if value not in _TRUTH:
        raise UsageError(f"{name}={quoted(environment[name])} is neither true nor false", remedy=f"{name}=1 or {name}=0")
    return _TRUTH[value]


def _mirror(address: str) -> str:
    parts = _parsed(address)
    if parts is None or parts.scheme != "https" or parts.query or parts.fragment or parts.username is not None:
        raise UsageError(
            f"mirror {quoted(shown_url(address))} is not an address like https://mirror.example/files",
            remedy=f"correct {MIRRORS_VARIABLE}",
        )
    return address.rstrip("/")


def _tree(address: str) -> str:
    url, _, digest = address.partition("#sha256=")
    parts = _parsed(url)
    if parts is None or parts.scheme != "https" or parts.username is not None or parts.fragment or not _DIGEST.fullmatch(digest):
        raise UsageError(
            f"machine tree {quoted(shown_url(url))} is not an address with a digest",
            remedy=f"{TREE_VARIABLE}=https://files.example/machine-v1.36.3-amd64.tar.zst#sha256=DIGEST, 64 hexadecimal digits in lower case",
        )
    return address


def _proxy(address: str) -> str:
    parts = _parsed(address)
    if parts is None or parts.scheme not in {"http", "https"}:
        raise UsageError(
            f"proxy {quoted(shown_url(address))} is not an address like http://proxy.example:3128",
            remedy=f"correct {PROXY_VARIABLE}",
        )
    return address


def _parsed(address: str) -> SplitResult | None:
    """Return the parts of a URL; None if it has no host, or a port that is not a number."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.hostname else None
