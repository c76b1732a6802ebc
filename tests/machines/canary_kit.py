"""Known secrets, and all places where they could appear: output, arguments of processes, the journal, every file that a machine wrote."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import canaries
from kubewright.machines.machine import Machine

TOKEN_ID, TOKEN_SECRET = "c4n4ry", "c4n4ry0t0ken0000"
TOKEN: Final = f"{TOKEN_ID}.{TOKEN_SECRET}"
CERTIFICATE_KEY: Final = "c4" * 32
PASSWORD: Final = "canary-of-an-environment-variable"
KEYS: Final = ("ca.key", "front-proxy-ca.key", "etcd/ca.key", "sa.key", "apiserver.key", "etcd/server.key")
KUBECONFIGS: Final = ("admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf")
_WRITTEN_IN_MEMORY: Final = ("run", "tmp", "dev/shm")


def _forms(secret: str) -> tuple[str, ...]:
    """Return a text and its base64."""
    return secret, base64.b64encode(secret.encode()).decode().rstrip("=")


GIVEN: Final[Mapping[str, Sequence[str]]] = {
    "token": _forms(TOKEN_SECRET),
    "certificate key": _forms(CERTIFICATE_KEY),
    "password": _forms(PASSWORD),
}
"""The secrets in the configuration."""


def made(machine: Machine) -> Mapping[str, Sequence[str]]:
    """Return canaries of the private keys on a machine, each as in its file and as in a kubeconfig."""
    found = {name: canaries.forms(machine.run("cat", f"/etc/kubernetes/pki/{name}").out) for name in KEYS}
    for name in KUBECONFIGS:
        text = machine.run("cat", f"/etc/kubernetes/{name}").out
        data = next(line.split()[1] for line in text.splitlines() if "client-key-data" in line)
        found[name] = canaries.forms(base64.b64decode(data).decode())
    return found


def seen(text: str, wanted: Mapping[str, Sequence[str]]) -> set[str]:
    """Name the canaries in a text, even if its lines are broken or indented."""
    joined = "".join(text.split())
    return {name for name, forms in wanted.items() if any(form in text or form in joined for form in forms)}


_LOOKS: Final = 4
"""A process may exec another program after it was first seen, and does not change for long."""


@dataclass
class Arguments:
    """The command lines of all processes of a machine, including those that exist for only a tenth of a second."""

    machine: Machine
    found: set[str] = field(default_factory=set)
    _looked: Counter[int] = field(default_factory=Counter)

    @contextmanager
    def watched(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._look, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _look(self, ended: threading.Event) -> None:
        while not ended.wait(0.05):
            for pid in self.machine.cgroups.processes():
                self._looked[pid] += 1
                if self._looked[pid] > _LOOKS:
                    continue
                try:
                    self.found.add(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:
                    continue  # it has ended


def journal(machine: Machine) -> str:
    """Return the whole journal."""
    return machine.run("journalctl", "--all", "--no-pager", "-o", "export").out


@dataclass(frozen=True)
class Kept:
    """A file with a canary. `private` is true if only root can read it."""

    path: str
    canary: str
    private: bool


def files(machine: Machine, wanted: Mapping[str, Sequence[str]]) -> list[Kept]:
    """Return every file with a canary that the machine wrote, on its disk or in memory."""
    roots = [machine.places.upper, *(machine.root / name for name in _WRITTEN_IN_MEMORY)]
    return sorted((one for root in roots for one in _files(machine, root, wanted)), key=lambda one: (one.path, one.canary))


def _files(machine: Machine, root: Path, wanted: Mapping[str, Sequence[str]]) -> Iterator[Kept]:
    patterns = "\n".join(form for forms in wanted.values() for form in forms)
    argv = ["grep", "-rlaF", "--devices=skip", "-f", "-", str(root)]
    ended = subprocess.run(argv, input=patterns.encode(), capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"})
    base = machine.places.upper if root == machine.places.upper else machine.root
    for name in ended.stdout.decode().splitlines():
        path = Path(name)
        try:
            content, private = path.read_bytes(), _private(path, base)
        except FileNotFoundError:  # etcd and containerd delete files of their own
            continue
        for canary in wanted:
            if any(form.encode() in content for form in wanted[canary]):
                yield Kept(path=f"/{path.relative_to(base)}", canary=canary, private=private)


def _private(path: Path, base: Path) -> bool:
    """Whether only root can read a file, because of its own mode or that of a directory above it."""
    own = path.stat()
    above = [one.stat() for one in path.parents if one.is_relative_to(base) and one != base]
    closed = not own.st_mode & 0o077 or any(not one.st_mode & 0o077 for one in above)
    return closed and own.st_uid == 0
