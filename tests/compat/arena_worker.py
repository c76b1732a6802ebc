"""The inside of an arena: one program, run repeatedly on its own machine, which is emptied between the runs.

Started by `arena.Arena` inside a new mount namespace. It builds a root directory from bind mounts of this machine's
files, in which /etc and /var/lib are new directories (with copied or read-only contents), /run and /srv are empty,
root is the only user, and kubeadm's paths do not exist; nothing that is written reaches the real machine. It then
serves requests from its standard input, a line of JSON each.

Usage: python arena_worker.py ROOT (ours | PROGRAM)
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import io
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import arena_api
import arena_network

BIND, REC = 0x1000, 0x4000
"""MS_BIND and MS_REC of <sys/mount.h>."""

MOUNT_SETATTR, RECURSIVE, READ_ONLY, HERE = 442, 0x8000, 1, -100
"""The system call, AT_RECURSIVE, MOUNT_ATTR_RDONLY and AT_FDCWD."""

HIDDEN = {"/etc": {"kubernetes", "cni"}, "/var": {"lib"}, "/var/lib": {"kubelet", "etcd", "dockershim", "cni", "kubewright"}}
"""Directories whose entries are mounted one by one, and the entries that are left out. /var/lib has its own row."""

PROJECT = Path(__file__).resolve().parents[2]
EMPTY = ("run", "srv")
WIPED = (Path("/etc"), Path("/var/lib"), Path("/srv"), Path("/run"))


def mount(source: str, target: Path, *, kind: str = "", flags: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), str(target).encode(), kind.encode() or None, flags, None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def allow_writing(place: Path, *, flags: int, allow: bool) -> None:
    """Make a mount writable or read-only, optionally with all mounts below it. Otherwise, writes would reach the real machine."""
    wanted = (ctypes.c_uint64 * 4)(0 if allow else READ_ONLY, READ_ONLY if allow else 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(MOUNT_SETATTR, HERE, str(place).encode(), flags, wanted, ctypes.c_size_t(ctypes.sizeof(wanted))):
        raise OSError(ctypes.get_errno(), "mount_setattr")


def build(root: Path) -> None:
    """Build the machine below `root`, and make it the root directory."""
    mount("tmpfs", root, kind="tmpfs")
    for entry in Path("/").iterdir():
        if entry.name in EMPTY:
            (root / entry.name).mkdir()
        elif entry.is_symlink() or str(entry) not in HIDDEN:
            bind(entry, root)
        else:
            bind_entries(entry, root)
    (root / "srv").mkdir(exist_ok=True)
    if PROJECT.parts[1] in EMPTY:  # our own sources are loaded when they are needed
        place = root / PROJECT.relative_to("/")
        place.mkdir(parents=True)
        mount(str(PROJECT), place, flags=BIND | REC)
    allow_writing(root, flags=RECURSIVE, allow=False)
    allow_writing(root, flags=0, allow=True)
    os.chroot(root)
    os.chdir("/")
    resolver = Path("/etc/resolv.conf")  # nothing answers there, so that no lookup waits
    resolver.unlink(missing_ok=True)
    resolver.write_text("nameserver 127.0.0.1\n")
    Path("/etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    Path("/etc/group").write_text("root:x:0:\n")


def bind_entries(directory: Path, root: Path) -> None:
    (root / directory.relative_to("/")).mkdir()
    for entry in directory.iterdir():
        if entry.name not in HIDDEN[str(directory)]:
            bind(entry, root)
        elif str(entry) in HIDDEN:
            bind_entries(entry, root)


def bind(source: Path, root: Path) -> None:
    target = root / source.relative_to("/")
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        target.mkdir()
        with contextlib.suppress(PermissionError):  # owned by another user
            mount(str(source), target, flags=BIND | REC)
    elif source.is_file():
        with contextlib.suppress(PermissionError):
            shutil.copy(source, target)


class Machine:
    """The machine after it was built: what must stay in its directories, and everything else."""

    def __init__(self) -> None:
        self._stays = {entry for place in WIPED for entry in place.iterdir()}
        self._contents = {entry: entry.read_bytes() for entry in self._stays if entry.is_file() and not entry.is_symlink()}

    def wipe(self) -> None:
        """Restore that state."""
        for entry, content in self._contents.items():
            if entry.read_bytes() != content:
                entry.write_bytes(content)
        for place in WIPED:
            for entry in set(place.iterdir()) - self._stays:
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()

    def tree(self) -> dict[str, tuple[str, int, str, str]]:
        """Everything that was created or changed: kind, mode and, for files, the content."""
        changed = {str(entry): entry.read_bytes() for entry, content in self._contents.items() if entry.read_bytes() != content}
        found = {path: ("file", 0, base64.b64encode(content).decode(), "") for path, content in changed.items()}
        for place in WIPED[:3]:
            for top in set(place.iterdir()) - self._stays:
                for path in [top, *(top.rglob("*") if top.is_dir() else ())]:
                    kind = "link" if path.is_symlink() else "directory" if path.is_dir() else "file"
                    content = base64.b64encode(path.read_bytes()).decode() if kind == "file" else ""
                    about = path.lstat()
                    found[str(path)] = (kind, about.st_mode & 0o7777, content, f"{about.st_uid}:{about.st_gid}")
        return found


def real(program: str, argv: list[str], environment: dict[str, str], given: str) -> tuple[int, str, str]:
    """Run a real program. With an empty PATH it finds no service manager and no container tools."""
    done = subprocess.run(
        [program, *argv],
        env={"PATH": "/none", "HOME": "/root", **environment},
        capture_output=True,
        input=given,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def ours(argv: list[str], environment: dict[str, str], given: str) -> tuple[int, str, str]:
    """Run our program in this process, called as `kubeadm`."""
    from kubewright.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    os.environ.clear()
    os.environ.update({"PATH": "/none", "HOME": "/root", **environment})
    sys.argv[0], sys.stdin = "kubeadm", io.StringIO(given)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    return code, out.getvalue(), err.getvalue()


def answer(request: dict[str, Any], program: str, machine: Machine) -> dict[str, Any]:
    machine.wipe()
    for name, text in request["files"].items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text.encode(errors="surrogateescape"))
        if name.endswith((".key", ".conf")):
            Path(name).chmod(0o600)
    runs = []
    with arena_api.serving(request["cluster"]):
        for argv in request["commands"]:
            one = (argv, request["environment"], request["stdin"])
            runs.append(ours(*one) if program == "ours" else real(program, *one))
            if runs[-1][0] and request["stops"]:
                break
    return {"runs": runs, "tree": machine.tree()}


def serve(program: str) -> None:
    machine, answers = Machine(), sys.stdout
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line), program, machine)) + "\n")
        answers.flush()


if __name__ == "__main__":
    os.umask(0o022)
    socket.sethostname("node1")
    arena_network.set_up()
    build(Path(sys.argv[1]))
    serve(sys.argv[2])
