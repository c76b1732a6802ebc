"""busybox for the images of Kubernetes' tests: upstream's version and configuration, built once from Debian's source package.

Debian's own program would not do: it drops environment variables such as `data-1`, which tests expect in their pods
(debian/patches/revert-9c143ce52da11ec3d21a3491c3749841d3dc10f0.patch).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from kubewright.machines.base import mirror
from kubewright.machines.places import cache
from kubewright.machines.running import run

VERSION: Final = "1.37.0"
"""That of the image busybox:1.37.0-1, and of Debian 13."""
_SUITE: Final = "trixie"
_USUAL: Final = "http://deb.debian.org/debian"
_SETTINGS: Final = {"CONFIG_STATIC=y": "# CONFIG_STATIC is not set", "# CONFIG_TC is not set": "CONFIG_TC=y"}
"""Lines of upstream's default configuration that are replaced, by their replacement: no libraries; tc needs headers of older kernels."""


def ensure_busybox() -> Path:
    """Return the program; the first time, its source is downloaded and built, which takes a minute or two. Raises HostError if that fails."""
    place = cache() / f"conformance-busybox-{VERSION}" / "busybox"  # its file name selects the applet
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="busybox-", dir=place.parent) as scratch:
            _build(_source(Path(scratch))).rename(place)
    return place


def _source(scratch: Path) -> Path:
    """Download upstream's archive through apt, which verifies it with Debian's keys, and unpack it."""
    listed = scratch / "sources.list"
    listed.write_text(f"deb-src {mirror() or _USUAL} {_SUITE} main\n", encoding="ascii")
    for name in ("lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": listed,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "root",
    }
    apt = ("env", "-C", str(scratch), "apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items()))
    run(*apt, "update")
    run(*apt, "--download-only", "source", "busybox")
    run("tar", "-xf", str(scratch / f"busybox_{VERSION}.orig.tar.bz2"), "-C", str(scratch))
    return scratch / f"busybox-{VERSION}"


def _build(source: Path) -> Path:
    make = ("make", "-C", str(source), f"-j{os.cpu_count() or 1}")
    run(*make, "defconfig")
    configuration = source / ".config"
    lines = configuration.read_text(encoding="ascii").splitlines()
    for wanted, usual in _SETTINGS.items():
        lines[lines.index(usual)] = wanted
    configuration.write_text("\n".join([*lines, ""]), encoding="ascii")
    run(*make, "busybox", within=3600)
    return source / "busybox"
