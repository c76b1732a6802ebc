"""A plan and a run on the same machine give the same answer to any request: the same change, or the same refusal."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.base.errors import HostError
from kubewright.host.desired import Accounts, Directory, File, Ownership
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.host.seam import Host

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

Prepare = Callable[[Path], object]
Act = Callable[[Host, PurePosixPath], Change]


def machine(root: Path) -> RealHost:
    return RealHost(layout=Layout.below(PurePosixPath(root)), files=Files(durable=False), environment={})


def outcome(act: Callable[[], Change]) -> Change | tuple[str, str, str]:
    try:
        return act()
    except HostError as error:
        return error.what, error.detail, error.remedy


def view(host: Host, root: Path) -> list[object]:
    """What a host shows of a directory: names, kinds, modes, owners, contents."""
    shown: list[object] = []
    waiting = [PurePosixPath(root)]
    while waiting:
        path = waiting.pop()
        found = host.state(path)
        assert found is not None
        text = host.read(path) if found.kind.value == "file" else None
        shown.append((str(path), found.kind, found.mode, found.owner, found.group, text))
        waiting += host.entries(path) if found.kind.value == "directory" else []
    return shown


def on_disk(root: Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.lstat().st_mode, path.lstat().st_mtime_ns) for path in root.rglob("*"))


def made(root: Path, name: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def a_file(name: str, content: str = "old") -> Prepare:
    return lambda root: made(root, name).write_text(content)


def a_directory(name: str, *, owner: int | None = None) -> Prepare:
    def prepare(root: Path) -> None:
        made(root, name).mkdir()
        if owner is not None:
            os.chown(root / name, owner, owner)

    return prepare


def a_link(name: str, target: str, *, owner: int | None = None) -> Prepare:
    def prepare(root: Path) -> None:
        made(root, name).symlink_to(target)
        if owner is not None:
            os.chown(root / name, owner, owner, follow_symlinks=False)

    return prepare


def a_socket(name: str) -> Prepare:
    def prepare(root: Path) -> None:
        path = made(root, name)
        with socket.socket(socket.AF_UNIX) as bound, chdir(path.parent):  # paths of sockets are limited
            bound.bind(path.name)

    return prepare


def both(*prepare: Prepare) -> Prepare:
    return lambda root: [one(root) for one in prepare]


def accounts(passwd: str | None, group: str | None) -> Prepare:
    def prepare(root: Path) -> None:
        (root / "etc").mkdir()
        for name, text in (("passwd", passwd), ("group", group)):
            if text is not None:
                (root / "etc" / name).write_text(text)

    return prepare


def write(name: str, **more: object) -> Act:
    return lambda host, root: host.ensure(File(path=root / name, content=b"new\n", **more))  # type: ignore[arg-type]


def make(name: str, **more: object) -> Act:
    return lambda host, root: host.ensure(Directory(path=root / name, **more))  # type: ignore[arg-type]


def own(name: str, **more: object) -> Act:
    return lambda host, root: host.ensure(Ownership(path=root / name, owner=NOBODY, group=NOBODY, **more))  # type: ignore[arg-type]


def remove(name: str) -> Act:
    return lambda host, root: host.remove(root / name)


def empty(name: str) -> Act:
    return lambda host, root: host.empty(root / name)


def move(name: str, target: str) -> Act:
    return lambda host, root: host.move(root / name, root / target)


def unmount(name: str) -> Act:
    return lambda host, root: host.unmount(root / name)


def users(action: str) -> Act:
    def act(host: Host, root: PurePosixPath) -> Change:
        wanted = Accounts(users=("kubeadm-etcd",), groups={"kubeadm-etcd": ("kubeadm-etcd",)}, etc=root / "etc")
        return host.ensure(wanted) if action == "add" else host.remove_accounts(wanted)

    return act


def units(name: str) -> Act:
    return lambda host, root: host.remove_units("kubelet", units=[root / name])


def nothing(_: Path) -> None:
    pass


CASES: dict[str, tuple[Prepare, Act]] = {
    "a file": (nothing, write("kubernetes/a/f", directory_mode=0o700)),
    "a file that is there": (a_file("kubernetes/f"), write("kubernetes/f")),
    "a directory where the file is": (a_directory("kubernetes/f"), write("kubernetes/f")),
    "a link where the file is": (a_link("kubernetes/f", "/etc/passwd"), write("kubernetes/f")),
    "a socket where the file is": (a_socket("kubernetes/f"), write("kubernetes/f")),
    "a file on the way": (a_file("kubernetes"), write("kubernetes/f")),
    "a file two steps up": (a_file("kubernetes"), write("kubernetes/a/f")),
    "a socket on the way": (a_socket("kubernetes"), write("kubernetes/f")),
    "a link of ours on the way": (both(a_directory("real"), a_link("kubernetes", "real")), write("kubernetes/a/f")),
    "a link upwards on the way": (both(a_directory("a/real"), a_link("kubernetes", "a/real/../real")), write("kubernetes/f")),
    "a link to nothing on the way": (a_link("kubernetes", "nothing"), write("kubernetes/a/f")),
    "links in a circle on the way": (both(a_link("kubernetes", "other"), a_link("other", "kubernetes")), write("kubernetes/f")),
    "a link to a file on the way": (both(a_file("real"), a_link("kubernetes", "real")), write("kubernetes/f")),
    "a path with two dots": (nothing, write("kubernetes/../f")),
    "a directory": (nothing, make("kubernetes/a/b", mode=0o700)),
    "a file where the directory is": (a_file("kubernetes"), make("kubernetes")),
    "a link where the directory is": (both(a_directory("real"), a_link("kubernetes", "real")), make("kubernetes")),
    "a link to a directory with another mode": (
        both(a_directory("real"), a_link("kubernetes", "real")),
        make("kubernetes", mode=0o700, enforce=True),
    ),
    "a link to a file where the directory is": (both(a_file("real"), a_link("kubernetes", "real")), make("kubernetes")),
    "a link to nothing where the directory is": (a_link("kubernetes", "nothing"), make("kubernetes")),
    "a directory below a file": (a_file("kubernetes"), make("kubernetes/a/b")),
    "a directory below a link to nothing": (a_link("kubernetes", "nothing"), make("kubernetes/a")),
    "the owner of nothing": (nothing, own("kubernetes")),
    "the owner of a link": (a_link("kubernetes", "real"), own("kubernetes")),
    "a removal": (a_file("kubernetes/a/f"), remove("kubernetes/a")),
    "a removal of what is not there": (nothing, remove("kubernetes/a")),
    "a removal outside": (a_file("mine"), remove("mine")),
    "a removal of a link": (a_link("kubernetes/f", "/etc/passwd"), remove("kubernetes/f")),
    "a removal behind a link to nothing": (a_link("kubernetes", "nothing"), remove("kubernetes/f")),
    "an emptying": (both(a_file("etcd/member/f"), a_file("etcd/g")), empty("etcd")),
    "an emptying outside": (a_file("mine/f"), empty("mine")),
    "an emptying behind a link": (both(a_file("real/f"), a_link("etcd", "real")), empty("etcd")),
    "an unmounting outside": (nothing, unmount("elsewhere")),
    "an unmounting of the kubelet's directory itself": (a_directory("kubelet"), unmount("kubelet")),
    "an unmounting where nothing is mounted": (a_directory("kubelet/pods"), unmount("kubelet/pods")),
    "users": (accounts("root:x:0:0::/root:/bin/sh\n", "root:x:0:\n"), users("add")),
    "users without a list of users": (accounts(None, "root:x:0:\n"), users("add")),
    "users without a list of groups": (accounts("root:x:0:0::/root:/bin/sh\n", None), users("add")),
    "users of another form": (accounts("root\n", "root:x:0:\n"), users("add")),
    "users that are there and do not fit": (accounts("kubeadm-etcd:x:0:0:::/bin/sh\n", "root:x:0:\n"), users("add")),
    "a list of users that is a link": (
        both(accounts(None, "root:x:0:\n"), a_file("other", "root:x:0:0:::\n"), a_link("etc/passwd", "../other")),
        users("add"),
    ),
    "users that go": (accounts("a:x:1:1:::\nkubeadm-etcd:x:2:2:::\n", "kubeadm-etcd:x:2:\n"), users("remove")),
    "users that go from a list that is a link": (
        both(accounts(None, "kubeadm-etcd:x:2:\n"), a_file("other", "kubeadm-etcd:x:2:2:::\n"), a_link("etc/passwd", "../other")),
        users("remove"),
    ),
    "units elsewhere": (a_file("kubelet.service"), units("kubelet.service")),
}

ROOT_CASES: dict[str, tuple[Prepare, Act]] = {
    "a directory of somebody else on the way": (a_directory("kubernetes", owner=NOBODY), write("kubernetes/f")),
    "a directory of somebody else higher up": (
        both(a_directory("kubernetes", owner=NOBODY), a_directory("kubernetes/a")),
        write("kubernetes/a/f"),
    ),
    "a link of somebody else on the way": (both(a_directory("real"), a_link("kubernetes", "real", owner=NOBODY)), write("kubernetes/f")),
    "a directory of somebody else behind a link": (
        both(a_directory("real", owner=NOBODY), a_link("kubernetes", "real")),
        write("kubernetes/f"),
    ),
    "a directory below that of somebody else": (a_directory("kubernetes", owner=NOBODY), make("kubernetes/a")),
    "a mode that is enforced on the directory of somebody else": (
        a_directory("kubernetes", owner=NOBODY),
        make("kubernetes", mode=0o700, enforce=True),
    ),
    "the owner of what is below the directory of somebody else": (
        both(a_directory("kubernetes", owner=NOBODY), a_file("kubernetes/f")),
        own("kubernetes/f"),
    ),
    "a removal below the directory of somebody else": (
        both(a_directory("kubernetes", owner=NOBODY), a_file("kubernetes/f")),
        remove("kubernetes/f"),
    ),
    "an emptying of the directory of somebody else": (
        both(a_directory("kubernetes", owner=NOBODY), a_file("kubernetes/f")),
        empty("kubernetes"),
    ),
    "an emptying of the directory of etcd's user": (both(a_directory("etcd", owner=NOBODY), a_file("etcd/f")), empty("etcd")),
    "a rename in the directory of etcd's user": (both(a_directory("etcd", owner=NOBODY), a_directory("etcd/a")), move("etcd/a", "etcd/b")),
    "a directory of etcd's user behind a link": (both(a_directory("real", owner=NOBODY), a_link("etcd", "real")), make("etcd/a")),
    "a directory of somebody else above that of etcd": (
        both(a_directory("above", owner=NOBODY), a_directory("above/real", owner=NOBODY), a_link("etcd", "above/real")),
        make("etcd/a"),
    ),
    "a link of etcd's user": (both(a_directory("etcd", owner=NOBODY), a_link("etcd/a", "../b", owner=NOBODY)), make("etcd/a/b")),
    "a new owner": (a_file("kubernetes/f"), own("kubernetes/f", mode=0o640)),
    "a new owner of a tree": (a_file("etcd/a/f"), own("etcd", recursive=True)),
    "another content of a file of somebody else": (
        lambda root: (a_file("kubernetes/f")(root), os.chown(root / "kubernetes/f", NOBODY, NOBODY)),
        write("kubernetes/f"),
    ),
}


def compare(root: Path, act: Act) -> None:
    """Plan, check that nothing has changed, run, and compare the reports with the result."""
    host, before = machine(root), on_disk(root)
    plan = OverlayHost(host)
    planned = outcome(lambda: act(plan, PurePosixPath(root)))
    assert on_disk(root) == before
    shown = view(plan, root)
    assert planned == outcome(lambda: act(host, PurePosixPath(root)))
    assert shown == view(host, root)


@pytest.mark.parametrize("case", CASES)
def test_a_plan_accepts_and_refuses_what_a_run_does(tmp_path, case):
    prepare, act = CASES[case]
    prepare(tmp_path)
    compare(tmp_path, act)


@needs_root
@pytest.mark.parametrize("case", ROOT_CASES)
def test_a_plan_checks_owners_as_a_run_does(tmp_path, case):
    prepare, act = ROOT_CASES[case]
    prepare(tmp_path)
    compare(tmp_path, act)


@needs_root
def test_the_directory_of_etcd_may_belong_to_another_user(tmp_path):
    both(a_directory("etcd", owner=NOBODY), a_file("etcd/member/f"))(tmp_path)
    host = machine(tmp_path)
    assert host.move(host.layout.etcd_data / "member", host.layout.etcd_data / "aside")
    assert [path.name for path in host.entries(host.layout.etcd_data)] == ["aside"]
    assert host.empty(host.layout.etcd_data)
    assert host.entries(host.layout.etcd_data) == []
    a_link("etcd/link", "../kubernetes", owner=NOBODY)(tmp_path)
    with pytest.raises(HostError, match="etcd/link is a symbolic link that belongs to user 65534"):
        host.ensure(Directory(path=host.layout.etcd_data / "link/new"))


MOUNTS: dict[str, tuple[str, str]] = {
    "a removal of what something is mounted in": ("kubernetes/a/b", "remove kubernetes/a"),
    "a removal of what something is mounted at": ("kubernetes/a", "remove kubernetes/a"),
    "a removal of a file that is bound": ("kubernetes/f", "remove kubernetes/f"),
    "a removal of what is above two mounts": ("kubernetes/z kubernetes/a/b kubernetes/a/b/c", "remove kubernetes"),
    "an emptying with mounts in it": ("etcd/z etcd/a/b etcd/a/b/c etcd/f", "empty etcd"),
    "an unmounting": ("kubelet/pods/x", "unmount kubelet/pods/x"),
    "an unmounting outside": ("etcd/x", "unmount etcd/x"),
}


def with_mounts(root: Path, mounts: str, action: str) -> None:
    """In a separate namespace: mount something at each path, which is a file if it is called `f`, and compare."""
    (root / "source").mkdir()
    (root / "file").write_text("")
    for place in mounts.split():
        kind = "file" if place.endswith("f") else "source"
        made(root, place).touch() if kind == "file" else (root / place).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", root / kind, root / place], check=True)
    verb, place = action.split()
    host, plan = machine(root), OverlayHost(machine(root))
    planned, done = (outcome(lambda one=one: getattr(one, verb)(PurePosixPath(root / place))) for one in (plan, host))
    assert planned == done, (planned, done)


@needs_root
def test_a_plan_reports_mounts_as_a_run_does(tmp_path):
    """One process for all: each case has its own directory."""
    names = "; ".join(f"kit.with_mounts(root({number}), {mounts!r}, {action!r})" for number, (mounts, action) in enumerate(MOUNTS.values()))
    program = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import test_same_refusals as kit
def root(number):
    made = Path({str(tmp_path)!r}, str(number)); made.mkdir(); return made
{names}
print("compared", {len(MOUNTS)})
"""
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, f"compared {len(MOUNTS)}\n"), done.stderr
