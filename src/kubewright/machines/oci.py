"""OCI image archives, written without a container engine (image-spec v1.1: image-layout.md). Equal content gives equal bytes.

Used by scripts/image.py and for the images of machines; docs/decisions/0022-images-without-an-engine.md explains why this is our
own code.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"


def write(target: Path, *, reference: str, layer: bytes, config: Mapping[str, Any], compresslevel: int = 1) -> None:
    """Write an image of one layer, a tar archive, under the name by which containerd and podman know it.

    `config` is the image's configuration; its information about layers is filled in.
    """
    packed = gzip.compress(layer, compresslevel=compresslevel, mtime=0)
    whole = encode({**config, "rootfs": {"type": "layers", "diff_ids": [digest(layer)]}})
    manifest = encode(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": _descriptor(whole, CONFIG), "layers": [_descriptor(packed, LAYER)]}
    )
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    index = encode({"schemaVersion": 2, "manifests": [_descriptor(manifest, MANIFEST) | {"annotations": names}]})
    with tarfile.open(target, "w") as tar:
        add(tar, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        add(tar, "index.json", index)
        for blob in (packed, whole, manifest):
            add(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)


def add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    """Add a file that belongs to root and has the time 0."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def add_directory(tar: tarfile.TarFile, name: str, *, mode: int) -> None:
    """Add a directory."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    """Add a symbolic link."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def encode(value: object) -> bytes:
    """Write JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(content: bytes) -> str:
    """Return the name of a blob."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(content: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest(content), "size": len(content)}
