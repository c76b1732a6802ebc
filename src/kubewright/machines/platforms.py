"""Finds the platforms of the images in an archive: `python3 -c SOURCE < ARCHIVE` in a machine, which has the source of this file only.

The archive is untrusted input, so that the host does not read it. It imports nothing of kubewright, and limits its own
memory and time.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import tarfile
from typing import IO, Final

_MEMORY: Final = 256 << 20
_SECONDS: Final = 300
_LARGEST: Final = 4 << 20
"""Bytes of an image's configuration; larger files are taken for layers."""
_AT_ONCE: Final = 1 << 20
_PLATFORM: Final = re.compile(r"[a-z0-9]{1,16}/[a-z0-9_]{1,16}", re.ASCII)
_UNKNOWN: Final = "unknown/unknown"
"""The platform of attestations, which are not run (docs of BuildKit: attestations/attestation-storage)."""


def main() -> None:
    """Print each platform in a line."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    sys.stdout.writelines(f"{platform}\n" for platform in sorted(of_archive(sys.stdin.buffer)))


def of_archive(stream: IO[bytes]) -> set[str]:
    """Return the platforms that the configurations of images name, such as `linux/amd64`; nothing for those without one.

    Raises TarError and other errors for a damaged archive.
    """
    found = set[str]()
    with tarfile.open(fileobj=stream, mode="r|*", bufsize=_AT_ONCE) as archive:
        for entry in archive:
            content = archive.extractfile(entry) if entry.isreg() and entry.size <= _LARGEST else None
            if content is not None:
                found |= _of_file(content.read())
    return found


def _of_file(content: bytes) -> set[str]:
    """Return the platform of an image's configuration, nothing for another file (OCI image-spec v1.1: config.md)."""
    if not content.startswith(b"{"):
        return set()
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return set()
    platform = f"{value.get('os') or 'linux'}/{value.get('architecture')}"
    return {platform} if "rootfs" in value and _PLATFORM.fullmatch(platform) and platform != _UNKNOWN else set()


if __name__ == "__main__":
    main()
