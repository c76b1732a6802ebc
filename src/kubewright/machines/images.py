"""The container images of a cluster, made from the component binaries: one layer each, as OCI archives.

They have the names that `kubeadm config images list` prints, so that nothing has to be pulled.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kubewright.base import versions
from kubewright.base.level import KUBERNETES
from kubewright.base.records import dataclass, field
from kubewright.binaries import BinarySources
from kubewright.machines import oci
from kubewright.machines.kit import programs
from kubewright.machines.places import cache, making
from kubewright.machines.running import run

REPOSITORY = "registry.k8s.io"
PROGRAMS: Final = ("etcd", "etcdctl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns")
"""The programs of which the images are made."""
_USERS = "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:65532:65532::/home/nonroot:/sbin/nologin\n"
_PAUSE = """\
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(int count, char **arguments) {
  if (count > 1 && !strcmp(arguments[1], "-v")) return 0;
  signal(SIGINT, end); signal(SIGTERM, end); signal(SIGCHLD, reap);
  for (;;) pause();
}
"""
_TOOLS: Final = (
    "bin",
    "sbin",
    "lib",
    "lib64",
    "etc/alternatives",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "usr/bin",
    "usr/lib",
    "usr/lib64",
    "usr/sbin",
    "usr/share/iptables",
)
"""kube-proxy configures the packet filter with the host's own tools (nft, iptables, ipset, conntrack, kmod): parts of the base tree."""
_NOT_TOOLS: Final = ("usr/lib/python3", "usr/lib/systemd", "usr/bin/python3", "usr/lib/udev", "usr/lib/apt", "usr/lib/git")


@dataclass(frozen=True)
class Image:
    """One image: its reference, its contents, and how it is run."""

    reference: str
    files: Mapping[str, Path | bytes]
    links: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    user: str = ""
    tree: Path | None = None
    """A tree whose `parts` are in the image too."""
    parts: Sequence[str] = ()


def of_release(base: Path, *, version: str = KUBERNETES, sources: BinarySources | None = None) -> list[Image]:
    """Return the images of a cluster of a version."""
    release = versions.release_for(versions.Version.parse(version))
    paths = programs(PROGRAMS, version=version, sources=sources)
    components = [
        Image(f"{REPOSITORY}/{name}:{version}", {f"usr/local/bin/{name}": paths[name]}, entrypoint=())
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]
    busybox = (base / "bin" / "busybox").resolve()
    etcd = {f"usr/local/bin/{name}": paths[name] for name in ("etcd", "etcdctl")}
    coredns = f"{REPOSITORY}/coredns/coredns:{release.coredns_tag}"
    return [
        *components,
        Image(f"{REPOSITORY}/etcd:{release.etcd_tag}", etcd),
        Image(coredns, {"coredns": paths["coredns"]}, entrypoint=("/coredns",), user="65532:65532"),
        Image(f"{REPOSITORY}/pause:{release.pause_tag}", {"pause": ensure_pause()}, entrypoint=("/pause",), user="65535:65535"),
        Image(f"{REPOSITORY}/kube-proxy:{version}", {"usr/local/bin/kube-proxy": paths["kube-proxy"]}, tree=base, parts=_TOOLS),
        Image(
            "docker.io/library/busybox:test",
            {"bin/busybox": busybox},
            links={f"bin/{name}": "/bin/busybox" for name in ("sh", "sleep", "nslookup", "wget", "cat", "ls", "httpd", "nc")},
        ),
    ]


def archive(image: Image, target: Path, *, compresslevel: int = 1) -> None:
    """Write an image as an OCI archive."""
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": list(image.entrypoint) or None,
            "User": image.user,
        },
    }
    oci.write(target, reference=image.reference, layer=_layer(image), config=config, compresslevel=compresslevel)


def pause_place() -> Path:
    """Return where the program of the pause image is, or will be."""
    return cache() / f"pause-{hashlib.sha256(_PAUSE.encode()).hexdigest()[:12]}"


def ensure_pause() -> Path:
    """Return the program that holds a pod's namespaces: it reaps children and exits on SIGTERM.

    With `-v` it exits at once: kubeadm's check before upgrades runs it in this way, as a Job.
    """
    place = pause_place()
    if not place.exists():
        with making(place) as partial:
            run("gcc", "-static", "-Os", "-s", "-x", "c", "-o", str(partial), "-", text=_PAUSE)
    return place


def _layer(image: Image) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in ("tmp", "etc", "run"):
            oci.add_directory(tar, name, mode=0o1777 if name == "tmp" else 0o755)
        oci.add(tar, "etc/passwd", _USERS.encode())
        for part in image.parts:
            if image.tree is not None and os.path.lexists(image.tree / part):
                tar.add(image.tree / part, part, filter=_tool)
        for name, content in sorted(image.files.items()):
            oci.add(tar, name, content if isinstance(content, bytes) else content.read_bytes(), mode=0o755)
        for name, target in sorted(image.links.items()):
            oci.add_link(tar, name, target)
    return stream.getvalue()


def _tool(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.name.startswith(_NOT_TOOLS):
        return None
    entry.mtime = 0
    return entry
