"""Make an image of the archive of `make bundle`: dist/kubewright-VERSION-linux-ARCH.oci.tar (docs/decisions/0022-images-without-an-engine.md).

    python -m scripts.image [REFERENCE]

One layer: the archive's tree below /opt/kubewright, a link to it on the PATH, users, /tmp. It contains no shell and no other programs. It runs
as an ordinary user. The same archive gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import tarfile
import time
from pathlib import Path
from typing import Final

from kubewright.machines import oci

ROOT: Final = Path(__file__).resolve().parents[1]
HOME: Final = "opt/kubewright"
USER: Final = 65532
_PASSWD: Final = f"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/tmp:/sbin/nologin\n"
_GROUP: Final = f"root:x:0:\nnonroot:x:{USER}:\n"
_ARCHIVE: Final = re.compile(r"kubewright-(?P<version>.+)-linux-(?P<architecture>amd64|arm64)\.tar\.gz")


def main(arguments: list[str]) -> None:
    """Make the image of each archive below dist, and print its name."""
    found = [(path, match) for path in sorted((ROOT / "dist").glob("*.tar.gz")) if (match := _ARCHIVE.fullmatch(path.name))]
    if not found:
        sys.exit("error: there is no archive below dist\nhint: make bundle")
    for archive, match in found:
        version, architecture = match["version"], match["architecture"]
        reference = arguments[0] if arguments else f"localhost/kubewright:{version}"
        target = archive.with_name(archive.name.replace(".tar.gz", ".oci.tar"))
        layer, made = _layer(archive)
        config = {
            "architecture": architecture,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)),
            "os": "linux",
            "config": {
                "Entrypoint": ["/usr/local/bin/kubewright"],
                "Env": ["PATH=/usr/local/bin", "HOME=/tmp"],
                "Labels": {
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.title": "kubewright",
                    "org.opencontainers.image.version": version,
                },
                "User": f"{USER}:{USER}",
                "WorkingDir": "/",
            },
        }
        partial = target.with_suffix(".partial")
        oci.write(partial, reference=reference, layer=layer, config=config, compresslevel=5)
        partial.replace(target)
        sys.stdout.write(f"{target.relative_to(ROOT)} {target.stat().st_size / 1e6:.0f} MB {reference}\n")


def _layer(archive: Path) -> tuple[bytes, int]:
    """Return the layer, and the time that the archive's files have."""
    made = io.BytesIO()
    with gzip.open(archive) as packed, tarfile.open(fileobj=packed) as source, tarfile.open(fileobj=made, mode="w") as tar:
        oci.add_directory(tar, "etc", mode=0o755)
        oci.add(tar, "etc/group", _GROUP.encode())
        oci.add(tar, "etc/passwd", _PASSWD.encode())
        oci.add_directory(tar, "opt", mode=0o755)
        oci.add_directory(tar, "tmp", mode=0o1777)
        oci.add_directory(tar, "usr", mode=0o755)
        oci.add_directory(tar, "usr/local", mode=0o755)
        oci.add_directory(tar, "usr/local/bin", mode=0o755)
        oci.add_link(tar, "usr/local/bin/kubewright", f"/{HOME}/bin/kubewright")
        when = 0
        for entry in source:
            _, _, inside = entry.name.partition("/")
            entry.name = f"{HOME}/{inside}".rstrip("/")
            if entry.islnk():
                entry.linkname = f"{HOME}/{entry.linkname.partition('/')[2]}"
            when = int(entry.mtime)
            tar.addfile(entry, source.extractfile(entry) if entry.isfile() else None)
    return made.getvalue(), when


if __name__ == "__main__":
    main(sys.argv[1:])
