"""The same commands on two equal, empty machines: real kubeadm on one, kubewright on the other, both at the same time.

Each machine is a mount namespace (see `arena_worker`); ordinary users also get a user namespace. Nothing is left
behind.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("arena_worker.py")
SOURCE = Path(__file__).parents[2] / "src"
CONFIG = "/srv/kubeadm.yaml"


@dataclass(frozen=True)
class Run:
    """The output of one command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class File:
    """A path below /etc, /var/lib or /srv that the commands created. `kind` is file, directory or link."""

    kind: str
    mode: int
    content: bytes
    owner: str = "0:0"


class Files(dict[str, str]):
    """Files of a machine that are not shown if a test fails."""

    def __repr__(self) -> str:
        return f"<{len(self)} files>"


@dataclass(frozen=True)
class Answer:
    """The state of a machine after the commands. If a failing command ends the request, there are fewer runs than commands.

    `began` and `ended` are seconds of the monotonic clock, before and after the commands.
    """

    runs: Sequence[Run]
    files: Mapping[str, File]
    began: float
    ended: float

    @property
    def code(self) -> int:
        """The exit code of the last command that ran."""
        return self.runs[-1].code

    @property
    def err(self) -> str:
        return "".join(run.err for run in self.runs)

    @property
    def out(self) -> str:
        return "".join(run.out for run in self.runs)


@dataclass(frozen=True)
class Request:
    """Commands for an empty machine with only these files. `cluster` is what an API server in its network serves (`arena_api`)."""

    commands: Sequence[Sequence[str]]
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    stops: bool = True
    cluster: Mapping[str, Any] = field(default_factory=dict)


class Worker:
    """One machine with one program."""

    def __init__(self, root: str, program: str) -> None:
        self._began = 0.0
        own = [] if os.geteuid() == 0 else ["--map-root-user"]
        inside = ["unshare", "--mount", "--net", "--uts", *own]
        self._process = subprocess.Popen(
            [*inside, sys.executable, str(WORKER), root, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def ready(self) -> bool:
        return self._line() == "ready\n"

    def send(self, request: Request) -> None:
        assert self._process.stdin
        self._began = time.monotonic()
        self._process.stdin.write(json.dumps(request.__dict__) + "\n")
        self._process.stdin.flush()

    def run(self, request: Request) -> Answer:
        self.send(request)
        return self.receive()

    def receive(self) -> Answer:
        found: dict[str, Any] = json.loads(self._line())
        files = {path: File(kind, mode, base64.b64decode(content), owner) for path, (kind, mode, content, owner) in found["tree"].items()}
        return Answer([Run(*run) for run in found["runs"]], files, self._began, time.monotonic())

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(600)
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


class Arena:
    """Both machines."""

    def __init__(self, kubeadm: Worker, ours: Worker) -> None:
        self._kubeadm, self._ours = kubeadm, ours

    def both(self, kubeadm: Request, ours: Request | None = None) -> tuple[Answer, Answer]:
        """Run the requests at the same time; without a second one, the first is used for both. kubeadm's result comes first."""
        self._kubeadm.send(kubeadm)
        self._ours.send(ours or kubeadm)
        return self._kubeadm.receive(), self._ours.receive()


@contextmanager
def _worker(program: str) -> Iterator[Worker]:
    root = tempfile.mkdtemp(prefix="kubewright-arena-")
    worker = Worker(root, program)
    try:
        if not worker.ready():
            pytest.skip("no mount namespaces: this user may not make them")
        yield worker
    finally:
        worker.close()
        shutil.rmtree(root)


@contextmanager
def arena(kubeadm: str) -> Iterator[Arena]:
    """Create two machines. Skips the test if that is not allowed."""
    with ExitStack() as stack:
        yield Arena(stack.enter_context(_worker(kubeadm)), stack.enter_context(_worker("ours")))


@contextmanager
def alone() -> Iterator[Worker]:
    """Create a machine for kubewright only."""
    with _worker("ours") as made:
        yield made
