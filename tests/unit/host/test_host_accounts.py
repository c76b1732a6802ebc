"""System users and groups: which are added, which existing ones are refused, and the files of a real machine and of a plan."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import HostError, TryAgain
from kubewright.host import accounts
from kubewright.host.accounts import Ids, Limits, add_accounts, find_accounts
from kubewright.host.desired import Accounts, File, Ownership
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.manifests import rootless

WANTED = Accounts(users=("a", "b"), groups={"a": ("a",), "b": ("b",), "both": ("a", "b")})
PASSWD = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:100:101::/:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nother:x:102:\n"


def test_the_lowest_free_numbers_are_taken():
    added = add_accounts(PASSWD, GROUP, login_defs="", wanted=WANTED)
    assert added.passwd == PASSWD + "a:x:101:100:::/bin/false\nb:x:102:101:::/bin/false\n"
    assert added.group == GROUP + "a:x:100:a\nb:x:101:b\nboth:x:103:a,b\n"


def test_existing_accounts_stay_and_nothing_is_added_twice():
    once = add_accounts(PASSWD, GROUP, login_defs="", wanted=WANTED)
    again = add_accounts(once.passwd, once.group, login_defs="", wanted=WANTED)
    assert (again.passwd, again.group, again.users, again.groups) == (once.passwd, once.group, (), ())


def test_a_file_without_a_last_line_break_gets_one():
    assert add_accounts(PASSWD.rstrip(), "", login_defs="", wanted=WANTED).passwd.count("\n") == 4


def test_ranges_come_from_login_defs():
    text = "# SYS_UID_MIN 5\nSYS_UID_MIN\t\t 201\nSYS_UID_MAX 300\nSYS_GID_MIN 400\nUID_MIN 1000\n"
    assert Limits.parse(text) == Limits((201, 300), (400, 999))
    assert "\na:x:201:400:" in add_accounts(PASSWD, GROUP, login_defs=text, wanted=WANTED).passwd


@pytest.mark.parametrize(
    ("passwd", "group", "login_defs", "what"),
    [
        ("a:x:100:100:::/bin/bash\n", "a:x:100:a\n", "", "shell"),
        ("a:x:1000:100:::/bin/false\n", "a:x:100:a\n", "", "ID 1000"),
        ("a:x:100:200:::/bin/false\n", "a:x:100:a\n", "", 'in the group "200"'),
        ("a:x:100:100:::/bin/false\n", "z:x:100:a\n", "", 'in the group "z"'),
        ("", "both:x:100:a\n", "", 'members "a"'),
        ("", "both:x:5:a,b\n", "", "ID 5"),
        ("a:x:100\n", "", "", "line 1 of the file passwd"),
        ("", "x:x:y:\n", "", "line 1 of the file group"),
        ("", "", "SYS_UID_MIN many\n", "SYS_UID_MIN"),
        ("", "", "SYS_UID_MIN 998\nSYS_UID_MAX 998\n", "fewer than 2 IDs are free"),
    ],
)
def test_unsuitable_accounts_are_reported(passwd, group, login_defs, what):
    with pytest.raises(HostError, match=what) as caught:
        add_accounts(passwd, group, login_defs=login_defs, wanted=WANTED)
    assert caught.value.remedy


@given(st.text(alphabet="ab:x01\n,-", max_size=60), st.text(alphabet="ab:x01\n,-", max_size=60))
def test_any_files_are_extended_or_refused(passwd, group):
    try:
        added = add_accounts(passwd, group, login_defs="", wanted=WANTED)
    except HostError:
        return
    assert added.passwd.startswith(passwd)
    assert added.group.startswith(group)


@pytest.fixture
def host(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text(PASSWD)
    (tmp_path / "etc" / "group").write_text(GROUP)
    (tmp_path / "etc" / "passwd").chmod(0o640)
    return RealHost(layout=Layout.below(PurePosixPath(tmp_path)), files=Files(durable=False), environment={})


def wanted(host):
    return Accounts(users=WANTED.users, groups=WANTED.groups, etc=host.layout.etc)


def test_accounts_are_added_once(host):
    assert find_accounts(host, host.layout.etc, WANTED) is None
    change = host.ensure(wanted(host))
    assert (change.action, change.reason) == (Action.CREATE, "user a, user b, group a, group b, group both")
    assert find_accounts(host, host.layout.etc, WANTED) == Ids(users={"a": 101, "b": 102}, groups={"a": 100, "b": 101, "both": 103})
    assert not host.ensure(wanted(host))
    assert Path(host.layout.etc / "passwd").stat().st_mode & 0o777 == 0o640


def test_a_plan_reports_the_same_and_changes_no_file(host):
    plan = OverlayHost(host)
    assert plan.ensure(wanted(host)) == OverlayHost(host).ensure(wanted(host))
    assert find_accounts(plan, host.layout.etc, WANTED) is not None
    assert find_accounts(host, host.layout.etc, WANTED) is None
    assert not plan.ensure(wanted(host))


def test_a_machine_without_users_is_reported(tmp_path):
    host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={})
    with pytest.raises(HostError, match="passwd is missing"):
        host.ensure(wanted(host))


def test_files_that_another_program_changes_are_not_touched(host):
    read, write = os.pipe()
    holder = os.fork()
    if holder == 0:
        opened = os.open(host.layout.etc / "group", os.O_RDWR)
        fcntl.lockf(opened, fcntl.LOCK_EX)
        os.write(write, b"x")
        signal.pause()
    try:
        assert os.read(read, 1) == b"x"
        with pytest.raises(TryAgain, match="another program is changing users"):
            host.ensure(wanted(host))
    finally:
        os.kill(holder, 9)
        os.waitpid(holder, 0)
        os.close(read)
        os.close(write)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@needs_root
def test_root_can_change_owners_of_files_and_trees(host, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_text("x")
    (tree / "link").symlink_to("/etc/passwd")
    before = Path("/etc/passwd").stat().st_uid
    assert host.ensure(Ownership(path=PurePosixPath(tree), owner=123, group=124, recursive=True))
    places = [tree, tree / "sub", tree / "sub" / "file", tree / "link"]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in places} == {(123, 124)}
    assert Path("/etc/passwd").stat().st_uid == before
    assert not host.ensure(Ownership(path=PurePosixPath(tree), owner=123, group=124, recursive=True))


@needs_root
def test_a_replaced_file_keeps_its_owner_if_only_root_can_write_there(host, tmp_path):
    def replaced(place):
        path = PurePosixPath(place) / "file"
        host.ensure(File(path=path, content=b"old", owner=123, group=124))
        host.ensure(File(path=path, content=b"new"))
        return Path(path).stat().st_uid

    closed, open_ = tmp_path / "closed", tmp_path / "open"
    closed.mkdir(mode=0o755)
    open_.mkdir()
    open_.chmod(0o1777)
    assert (replaced(closed), replaced(open_)) == (123, 0)


@needs_root
def test_a_replaced_file_keeps_its_label(host, tmp_path):
    path = PurePosixPath(tmp_path / "file")
    host.ensure(File(path=path, content=b"old"))
    try:
        os.setxattr(path, "security.selinux", b"system_u:object_r:passwd_file_t:s0")
    except OSError:
        pytest.skip("the file system here takes no labels")
    host.ensure(File(path=path, content=b"new"))
    assert os.getxattr(path, "security.selinux") == b"system_u:object_r:passwd_file_t:s0"


def test_a_plan_knows_who_would_own_a_file(host, tmp_path):
    (tmp_path / "file").write_text("x")
    plan = OverlayHost(host)
    owned = Ownership(path=PurePosixPath(tmp_path / "file"), owner=123, group=124, mode=0o640)
    assert plan.ensure(owned).action is Action.UPDATE
    state = plan.state(owned.path)
    assert (state.owner, state.group, state.mode, plan.read(owned.path)) == (123, 124, 0o640, b"x")
    assert not plan.ensure(owned)


@pytest.mark.parametrize("kind", ["nothing", "link"])
def test_the_owner_of_a_missing_file_cannot_be_changed(host, tmp_path, kind):
    path = tmp_path / "file"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    with pytest.raises(HostError, match=r"is not there|symbolic link"):
        host.ensure(Ownership(path=PurePosixPath(path), owner=1, group=1))


def test_accounts_are_removed_and_every_other_line_stays():
    passwd = "root:x:0:0::/root:/bin/sh\n# a remark\nkubeadm-etcd:x:100:100:::/bin/false\nkubeadm-etcd2:x:101:101:::/bin/sh\nbroken\n"
    group = "root:x:0:\nkubeadm-etcd:x:100:kubeadm-etcd\nreaders:x:102:a,b\n"
    unwanted = Accounts(users=("kubeadm-etcd", "kubeadm-kas"), groups={"kubeadm-etcd": (), "readers": ()})
    left = accounts.remove_accounts(passwd, group, unwanted=unwanted)
    assert left.passwd == "root:x:0:0::/root:/bin/sh\n# a remark\nkubeadm-etcd2:x:101:101:::/bin/sh\nbroken\n"
    assert left.group == "root:x:0:\n"
    assert (left.users, left.groups) == (("kubeadm-etcd",), ("kubeadm-etcd", "readers"))


def test_only_created_accounts_are_removed(tmp_path):
    layout = Layout.below(PurePosixPath(tmp_path))
    Path(layout.etc).mkdir()
    before = {"passwd": "root:x:0:0::/root:/bin/sh\n", "group": "root:x:0:\n"}
    for name, text in before.items():
        Path(layout.etc / name).write_text(text)
    host, wanted = RealHost(layout=layout, environment={}), rootless.accounts(layout)
    host.ensure(wanted)
    plan = OverlayHost(host).remove_accounts(wanted)
    change = host.remove_accounts(wanted)
    assert plan == change
    assert change.reason.count("user ") == 4
    assert change.reason.count("group ") == 5
    assert {name: Path(layout.etc / name).read_text() for name in before} == before
    assert not host.remove_accounts(wanted)
