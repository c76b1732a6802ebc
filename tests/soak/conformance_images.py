"""The images that Kubernetes' tests use, under the names and tags that e2e.test expects.

Their programs are those of Kubernetes (agnhost, nonewprivs, pause) and upstream's busybox; curl and the C library are
Debian's, from the tree of the machines. nginx stands for any second image: the only test that needs it runs a shell in it.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.soak.conformance_busybox import ensure_busybox
from tests.soak.conformance_programs import CERTIFICATE

from kubewright.machines import oci
from kubewright.machines.images import archive, of_release
from kubewright.machines.running import run

REPOSITORY: Final = "registry.k8s.io/e2e-test-images"
AGNHOST: Final = f"{REPOSITORY}/agnhost:2.63.0"
_USERS: Final = "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/home:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
_GROUPS: Final = "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\nnobody:x:65534:\n"
_PARTS: Final = ("bin", "etc/alternatives", "lib", "lib64", "sbin", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin")
_LEFT_OUT: Final = ("usr/lib/python3", "usr/lib/systemd", "usr/bin/python3", "usr/lib/udev", "usr/lib/apt")
_NETCAT: Final = """\
#!/bin/sh
# nc -w 1 -u ADDRESS PORT, the form that the tests use: Debian's busybox has no UDP
exec socat -t "$2" - "UDP:$4:$5"
"""


@dataclass(frozen=True, kw_only=True)
class _Made:
    """One image: the files of its layer with their modes, and its configuration."""

    reference: str
    layer: bytes
    config: Mapping[str, object] = field(default_factory=dict)


def write_images(target: Path, *, base: Path, programs: Path) -> list[Path]:
    """Write the archives of all images into a directory, that of agnhost first."""
    found = []
    for number, image in enumerate(_all(base, programs)):
        path = target / f"{number}.tar"
        environment = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
        config = {"architecture": "amd64", "os": "linux", "config": {**environment, **image.config}}
        oci.write(path, reference=image.reference, layer=image.layer, config=config)
        found.append(path)
    return found


def _all(base: Path, programs: Path) -> Iterator[_Made]:
    served = {name: (programs / name).read_bytes() for name in ("agnhost", *CERTIFICATE)}
    tools = _layer({**served, "usr/local/bin/nc": _NETCAT.encode(), **_registry(base)}, links={"agnhost-2": "agnhost"}, tree=base)
    yield _Made(reference=AGNHOST, layer=tools, config={"Entrypoint": ["/agnhost"], "Cmd": ["pause"]})
    yield _Made(reference=f"{REPOSITORY}/glibc-dns-testing:2.0.0", layer=tools)
    program = ensure_busybox()
    links = {f"bin/{name}": "busybox" for name in run(str(program), "--list").split() if name != "busybox"}
    busybox = _layer({"bin/busybox": program.read_bytes()}, links=links)
    yield _Made(reference=f"{REPOSITORY}/busybox:1.37.0-1", layer=busybox, config={"Cmd": ["sh"]})
    yield _Made(reference=f"{REPOSITORY}/nonroot:1.5", layer=busybox, config={"Cmd": ["sh"], "User": "1234"})
    yield _Made(reference=f"{REPOSITORY}/nginx:1.15-4", layer=busybox, config={"Cmd": ["sh"], "StopSignal": "SIGTERM"})
    nonewprivs = _layer({"usr/local/bin/nnp": (programs / "nonewprivs").read_bytes()}, modes={"usr/local/bin/nnp": 0o6755})
    yield _Made(reference=f"{REPOSITORY}/nonewprivs:1.4", layer=nonewprivs, config={"Cmd": ["nnp"]})


def _registry(base: Path) -> dict[str, bytes]:
    """Return what agnhost's fake-registry-server serves: the pause image as pause:testing (prepare_registry.sh of agnhost's sources)."""
    (pause,) = (image for image in of_release(base) if "/pause:" in image.reference)
    path = base.parent / "pause.oci.partial"
    try:
        archive(pause, path)
        with tarfile.open(path) as tar:
            read = {entry.name: tar.extractfile(entry) for entry in tar if entry.isreg()}
            files = {name: file.read() for name, file in read.items() if file is not None}
    finally:
        path.unlink(missing_ok=True)
    manifest = json.loads(files["index.json"])["manifests"][0]["digest"]
    place = "var/registry/pause"
    found = {f"{place}/manifests/testing": manifest.encode()}
    for name, content in files.items():
        if name.startswith("blobs/"):
            digest = name.rpartition("/")[2]
            kind = "manifests" if manifest == f"sha256:{digest}" else "blobs"
            found[f"{place}/{kind}/sha256/{digest[:2]}/{digest}/data"] = content
    return found


def _layer(
    files: Mapping[str, bytes], *, links: Mapping[str, str] | None = None, modes: Mapping[str, int] | None = None, tree: Path | None = None
) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in ("etc", "home", "root", "run", "tmp", "uploads", "var"):
            oci.add_directory(tar, name, mode=0o1777 if name == "tmp" else 0o755)
        oci.add(tar, "etc/passwd", _USERS.encode())
        oci.add(tar, "etc/group", _GROUPS.encode())
        for part in _PARTS if tree is not None else ():
            assert tree is not None
            tar.add(tree / part, part, filter=_tool)
        for name, content in sorted(files.items()):
            oci.add(tar, name, content, mode=(modes or {}).get(name, 0o755))
        for name, target in sorted((links or {}).items()):
            oci.add_link(tar, name, target)
    return stream.getvalue()


def _tool(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.startswith(_LEFT_OUT) else entry
