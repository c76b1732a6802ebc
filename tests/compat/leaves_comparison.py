"""Single commands with a scratch directory as root: real kubeadm's process, and ours in a fork of this one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from certs_comparison import find_kubeadm

from kubewright.cli import rootfs
from kubewright.cli.main import main

PLACES = ("etc", "var/lib")
OURS = "var/lib/kubewright"
_QUOTED = re.compile(r'"([^"]*)"|(\[[^\]]*\])')
_TOPIC = re.compile(r"\[([\w/-]+)\] (.*)")


@dataclass(frozen=True)
class Done:
    """The result of a command: its exit code and its output."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[tuple[str, tuple[str, ...]]]:
        """The topic of each line, with what it names: quoted texts and lists. The words differ on purpose."""
        found = [_TOPIC.fullmatch(line) for line in self.out.splitlines()]
        return [(one[1], tuple(quoted or listed for quoted, listed in _QUOTED.findall(one[2]))) for one in found if one]


@dataclass(frozen=True, eq=False)
class Machine:
    """A scratch directory."""

    root: Path
    environment: dict[str, str]

    @classmethod
    def make(cls, root: Path, files: dict[str, str], environment: dict[str, str]) -> Machine:
        """Create a directory with files. Commands run only with the given variables."""
        for name, content in {"etc/kubernetes/.keep": "", "tmp/.keep": "", **files}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        return cls(root, environment)

    def kubeadm(self, *argv: str) -> Done:
        """Run real kubeadm; ordinary users need a user namespace to change the root."""
        inside = [] if os.geteuid() == 0 else ["unshare", "-r"]
        words = [*inside, find_kubeadm(), *argv, f"--rootfs={self.root}"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=600, env=self.environment)
        return Done(done.returncode, done.stdout, done.stderr)

    def kubewright(self, *argv: str) -> Done:
        """Run ours with all its modules loaded, as root: a separate process would load them for each command."""
        rootfs.preload("kubewright.cli.handlers.operations:run")
        out, err = self.root / "tmp/out", self.root / "tmp/err"
        child = os.fork()
        if child == 0:
            _become(self, out, err, argv)
        _, status = os.waitpid(child, 0)
        return Done(os.waitstatus_to_exitcode(status), out.read_text(), err.read_text())

    def files(self) -> dict[str, tuple[str, int, int]]:
        """Everything below the directories of a machine except our own record: its mode, owner and group by its path."""
        found = {}
        for place in PLACES:
            for path in sorted((self.root / place).rglob("*")):
                if path.is_relative_to(self.root / OURS):
                    continue
                state = path.stat()
                found[str(path.relative_to(self.root))] = (f"{state.st_mode:o}", state.st_uid, state.st_gid)
        return found

    def text(self, name: str) -> str:
        return (self.root / name).read_text()


def _become(machine: Machine, out: Path, err: Path, argv: tuple[str, ...]) -> None:
    """Run a command in the child of a fork, and never return."""
    code = 70
    try:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        os.environ.clear()
        os.environ.update(machine.environment)
        os.chroot(machine.root)
        os.chdir("/")
        code = main(argv)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
