"""A containerd for a test: its own directories and socket, no CNI, and nothing of it left afterwards. Needs root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from registry_kit import ARCHITECTURE

from kubewright import binaries
from kubewright.base.level import KUBERNETES
from kubewright.host.cri.runtime import CRIRuntime
from kubewright.host.processes import RealProcesses

MARKER = "KUBEWRIGHT_TEST_RUNTIME"
"""Marks containerd, its shims and their children, which leave their session and their parents."""

CONFIG = """\
version = 3
root = "{place}/root"
state = "{place}/state"
disabled_plugins = [
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{place}/s"
[ttrpc]
  address = "{place}/t"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{sandbox}"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "{place}/registries"
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
  platform = "linux/{architecture}"
  snapshotter = "native"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    conf_dir = "{place}/cni"
"""


def programs(*names: str) -> dict[str, Path]:
    """Find the programs of `binaries`. For ordinary users they may be missing, because all of this needs root."""
    if os.geteuid() != 0:
        pytest.skip("a container runtime needs root")
    found = _found(*names)
    if missing := sorted(set(names) - set(found)):
        pytest.skip(f"no {missing[0]}: run `kubewright binaries fetch {' '.join(names)}`, or set KUBEWRIGHT_BINARIES_DIR")
    return found


def _found(*names: str) -> dict[str, Path]:
    found = binaries.locate(names, version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
    return {name: one.path for name, one in found.items()}


class Containerd:
    """One containerd. `sandbox` is the image of its pods' first container."""

    def __init__(self, place: Path, *, sandbox: str = "") -> None:
        self.place = place
        self.endpoint = f"unix://{place}/s"
        self._sandbox = sandbox
        self._process: subprocess.Popen[bytes] | None = None

    def allow_http(self, registry: str) -> None:
        """Pull images from a registry without TLS."""
        directory = self.place / "registries" / registry
        directory.mkdir(parents=True)
        (directory / "hosts.toml").write_text(f'server = "http://{registry}"\n')

    def start(self) -> None:
        text = CONFIG.format(place=self.place, sandbox=self._sandbox, architecture=ARCHITECTURE)
        (self.place / "config.toml").write_text(text)
        paths = {path.parent for path in _found("containerd-shim-runc-v2", "runc").values()}  # only sandboxes need them
        environment = {"PATH": os.pathsep.join([*map(str, sorted(paths)), os.environ.get("PATH", "")]), MARKER: str(self.place)}
        with (self.place / "log").open("ab") as log:
            argv = [programs("containerd")["containerd"], "--config", self.place / "config.toml"]
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment, preexec_fn=_die_with_parent)  # noqa: PLW1509
        end = time.monotonic() + 600
        while time.monotonic() < end:
            with contextlib.suppress(Exception), contextlib.closing(CRIRuntime(self.endpoint)) as runtime:
                if runtime.status().unready is None:
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        pytest.fail("containerd did not come up:\n" + "\n".join((self.place / "log").read_text().splitlines()[-15:]))

    @property
    def serves(self) -> bool:
        """Whether it was started, and not stopped."""
        return self._process is not None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(600)
            self._process = None

    def close(self) -> None:
        """Stop it, its shims and its containers, and unmount their mounts."""
        self.stop(signal.SIGKILL)
        known, end = RealProcesses(), time.monotonic() + 600
        # a shim that is killed may have started another process, and may still write
        while left := known.marked({MARKER: str(self.place)}):
            assert time.monotonic() < end, left
            for identity in left:
                known.signal(identity, signal.SIGKILL)
            time.sleep(0.05)
        for mount in reversed(mounts_below(self.place)):
            subprocess.run(["umount", "--lazy", mount], check=True)


def mounts_below(place: Path) -> list[str]:
    fields = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [field[1] for field in fields if field[1].startswith(f"{place}/")]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def containerd(*, sandbox: str = "") -> Iterator[Containerd]:
    """Run a containerd. Its directory has a short name, because the paths of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="kw-cri-") as name:
        running = Containerd(Path(name), sandbox=sandbox)
        try:
            running.start()
            yield running
        finally:
            running.close()
