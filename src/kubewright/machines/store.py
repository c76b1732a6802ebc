"""The container runtime's directory with all images unpacked, made once.

Every machine gets a copy with hard links, except for the databases; on another file system, a copy of everything.

It is made by a containerd on the host itself, with its own directory and socket.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.machines.images import Image, archive
from kubewright.machines.kit import programs
from kubewright.machines.places import cache, making
from kubewright.machines.running import PATH, run, step

_CONFIG = "version = 3\ndisabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri']\n"


def ensure_store(images: list[Image], *, key: str, reporter: Reporter) -> Path:
    """Return the directory, creating it if necessary. `key` identifies the sources of the images."""
    digest = hashlib.sha256("\0".join((key, *map(repr, images))).encode()).hexdigest()[:12]
    place = cache() / f"store-{digest}"
    if not place.exists():
        with making(place) as partial, step(reporter, "making the container images of the machines", takes="about a minute"):
            partial.mkdir()
            _fill(partial, images)
    return place


def _fill(directory: Path, images: list[Image]) -> None:
    path, ctr = directory / "image.tar", str(programs(("ctr",))["ctr"])  # /tmp may be too small for an image
    with tempfile.TemporaryDirectory(prefix="kubewright-testbed-") as state, _containerd(directory, Path(state)) as socket:
        for image in images:
            archive(image, path)
            run(ctr, "--address", socket, "-n", "k8s.io", "images", "import", "--local", "--snapshotter", "overlayfs", str(path))
            path.unlink()


def copy_store(store: Path, target: Path) -> None:
    """Give a machine its own copy: files as hard links, because they are never written to; databases as copies.

    On another file system than the store's, all files are copies.
    """
    shutil.rmtree(target, ignore_errors=True)
    linked = store.stat().st_dev == target.parent.stat().st_dev
    run("cp", "-al" if linked else "-a", str(store), str(target))
    for path in target.rglob("*.db") if linked else ():
        copied = path.with_suffix(".copied")
        shutil.copy2(path, copied)
        copied.replace(path)


@contextmanager
def _containerd(directory: Path, scratch: Path) -> Iterator[str]:
    """Run a containerd without its Kubernetes plugin on a directory, and provide its socket."""
    config, socket, log = scratch / "config.toml", scratch / "containerd.sock", scratch / "log"
    config.write_text(_CONFIG, encoding="ascii")
    argv = [
        *(str(programs(("containerd",))["containerd"]), "--config", str(config), "--root", str(directory)),
        *("--state", str(scratch / "state"), "--address", str(socket)),
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen(argv, stdout=stream, stderr=stream, env={"PATH": PATH})

    def ready() -> str | None:
        if process.poll() is not None:
            raise HostError("containerd did not start", detail=log.read_text(errors="replace")[-2000:])
        return None if socket.exists() else "its socket does not exist yet"

    try:
        PollingWaiter(clock=SystemClock(), reporter=SilentReporter()).until(ready, within=60, saying="containerd to start")
        yield str(socket)
    finally:
        process.terminate()
        process.wait(120)
