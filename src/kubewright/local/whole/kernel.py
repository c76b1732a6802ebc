"""The host's kernel, as machines see it: its modules, and its configuration, which the check SystemVerification reads.

Machines have no kernel of their own, so their Debian tree has neither. Many kernels show no configuration in /proc.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_MODULES: Final = "lib/modules"
_RELEASE: Final = os.uname().release


def configuration(*, root: Path = Path("/"), release: str = _RELEASE) -> Path | None:
    """Return the file with the configuration of the kernel; None if this host has none, as in most containers, or this user cannot read it."""
    from kubewright.preflight.system import CONFIGS

    paths = (root / pattern.format(release=release).lstrip("/") for pattern in CONFIGS)
    return next((path for path in paths if os.access(path, os.R_OK)), None)


def shared(*, root: Path = Path("/"), release: str = _RELEASE) -> dict[str, Path]:
    """Return the paths at which machines see files of the host, and those files. Machines have a /proc of their own."""
    found = configuration(root=root, release=release)
    seen = {f"/{_MODULES}": root / _MODULES} if (root / _MODULES).is_dir() else {}
    if found is not None and not found.is_relative_to(root / "proc"):
        seen[f"/boot/config-{release}"] = found
    return seen
