"""What stands for mounts: a process sees the host's files, so container paths in its arguments and environment become host paths. Pure.

A mount whose two paths are the same needs nothing, and that is all kubeadm writes by itself. For the others the container path is
replaced wherever it stands as a whole path or as the beginning of one: `--flag=/c`, `/c/file`, `a=/c,b=/c/x`, `unix:///c/sock`.
What a program finds without being told cannot be replaced; such a mount is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from kubewright.local.supervisor.pod import Mount

SEARCHED: Final = (
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/dev",
    "/proc",
    "/sys",
)
"""What programs open without being told to: CA bundles (Go's crypto/x509, spec/kubeadm.md 6.7), names, users, time zones, devices."""

_BEFORE: Final = r"""(?:(?<![^=,:;\s"'])|(?<=://))"""
_AFTER: Final = r"""(?=$|[/,:;\s"'])"""

Rewrite = Callable[[str], str]


def rewriter(mounts: Sequence[Mount]) -> Rewrite:
    """Return the function that turns container paths in a text into host paths; the longest mount path wins, each place changes once."""
    moved = {mount.mount_path: mount.host_path for mount in mounts}
    if all(inside == outside for inside, outside in moved.items()):
        return lambda text: text
    choice = "|".join(re.escape(path) for path in sorted(moved, key=len, reverse=True))
    pattern = re.compile(f"{_BEFORE}({choice}){_AFTER}")
    return lambda text: pattern.sub(lambda match: moved[match[1]], text)


def why_not(mount: Mount, texts: Sequence[str]) -> str | None:
    """Return why a mount cannot be stood for in a process with these arguments and variables, or None if it can."""
    if mount.mount_path == mount.host_path:
        return None
    for place in SEARCHED:
        if _within(mount.mount_path, place) or _within(place, mount.mount_path):
            return f"programs look into {place} without being told, and a process sees the host's; use the same path on the host"
    pattern = re.compile(f"{_BEFORE}{re.escape(mount.mount_path)}{_AFTER}")
    if not any(pattern.search(text) for text in texts):
        return f"no argument or variable names it, so the process would not find {mount.host_path}; use the same path on the host"
    return None


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent + "/")
