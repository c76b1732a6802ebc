"""The pure middle of `ensure`, as tables."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.machine import Layout
from kubewright.base.change import Action, Lifetime
from kubewright.base.errors import HostError
from kubewright.host.decisions import DIFF_LIMIT, decide_directory, decide_file, decide_removal, decide_service, service_verbs
from kubewright.host.desired import Directory, File, Service, Show
from kubewright.host.states import FileState, Kind, ServiceState

PATH = PurePosixPath("/etc/kubernetes/manifests/etcd.yaml")
CREATE, UPDATE, NONE, DELETE = Action.CREATE, Action.UPDATE, Action.NONE, Action.DELETE


def on_disk(mode=0o600, kind=Kind.FILE, **more: object):
    return FileState(kind=kind, mode=mode, **more)


def without_comments(found, desired):
    return [line for line in found.splitlines() if not line.startswith(b"#")] == desired.splitlines()


@pytest.mark.parametrize(
    ("found", "content", "more", "action", "reason"),
    [
        pytest.param(None, None, {}, CREATE, "", id="missing"),
        pytest.param(on_disk(), None, {}, CREATE, "", id="gone between two looks"),
        pytest.param(on_disk(), b"a: 1\n", {}, NONE, "", id="same bytes"),
        pytest.param(on_disk(), b"a: 2\n", {}, UPDATE, "", id="other bytes"),
        pytest.param(on_disk(0o644), b"a: 1\n", {}, UPDATE, "mode 0644 instead of 0600", id="other mode"),
        pytest.param(on_disk(0o644), b"a: 1\n", {"mode": 0o644}, NONE, "", id="the mode that is desired"),
        pytest.param(on_disk(owner=7), b"a: 1\n", {}, NONE, "", id="no owner is desired"),
        pytest.param(on_disk(owner=7), b"a: 1\n", {"owner": 0}, UPDATE, "owner 7 instead of 0", id="other owner"),
        pytest.param(on_disk(group=7), b"a: 1\n", {"group": 9}, UPDATE, "group 7 instead of 9", id="other group"),
        pytest.param(on_disk(owner=7, group=9), b"a: 1\n", {"owner": 7, "group": 9}, NONE, "", id="owner and group as desired"),
        pytest.param(on_disk(), b"# x\na: 1\n", {"same": without_comments}, NONE, "", id="the same by meaning"),
        pytest.param(
            on_disk(0o640), b"# x\na: 1\n", {"same": without_comments}, UPDATE, "mode 0640 instead of 0600", id="same meaning, other mode"
        ),
        pytest.param(on_disk(), b"\xff\xfe", {}, UPDATE, "5 bytes, not shown", id="found is not text"),
        pytest.param(on_disk(), b"a\0b", {}, UPDATE, "5 bytes, not shown", id="found is binary"),
        pytest.param(None, None, {"content": b"\0" * 9}, CREATE, "9 bytes, not shown", id="desired is binary"),
        pytest.param(None, None, {"content": b"x" * (DIFF_LIMIT + 1)}, CREATE, "262145 bytes, not shown", id="too long for a diff"),
        pytest.param(None, None, {"show": Show.SIZE}, CREATE, "5 bytes, not shown", id="secret"),
        pytest.param(None, None, {"show": Show.MADE}, CREATE, "made on apply", id="made"),
        pytest.param(
            on_disk(0o644), b"old", {"show": Show.MADE}, UPDATE, "made on apply, mode 0644 instead of 0600", id="created again, other mode"
        ),
        pytest.param(on_disk(), b"a: 1\n", {"show": Show.MADE}, NONE, "", id="made before"),
        pytest.param(None, None, {"content": b""}, CREATE, "", id="empty"),
    ],
)
def test_a_file_is_written_only_when_it_differs(found, content, more, action, reason):
    change = decide_file(found, content, File(path=PATH, **({"content": b"a: 1\n"} | more)))
    assert (change.action, change.reason) == (action, reason)
    assert change.target == f"file {PATH}"
    assert change.diff == "" or not reason


def test_the_diff_is_shown():
    change = decide_file(on_disk(), b"a: 1\nb: 2\n", File(path=PATH, content=b"a: 1\nb: 3\n"))
    assert change.diff == f"--- {PATH} (found)\n+++ {PATH} (desired)\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"


def test_secrets_are_masked_on_both_sides():
    found = b"token: abcdef.0123456789abcdef\nport: 1\n"
    change = decide_file(on_disk(), found, File(path=PATH, content=b"token: abcdef.fedcba9876543210\nport: 2\n"))
    assert "0123456789abcdef" not in change.diff
    assert "fedcba9876543210" not in change.diff
    assert "+port: 2" in change.diff


def test_a_difference_in_secrets_is_reported_without_showing_them():
    found = b"token: abcdef.0123456789abcdef\n"
    change = decide_file(on_disk(), found, File(path=PATH, content=b"token: abcdef.fedcba9876543210\n"))
    assert (change.action, change.diff) == (UPDATE, "")
    assert change.reason == "only values that are not shown differ"


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.FILE])
def test_something_other_than_a_file_is_refused(kind):
    with pytest.raises(HostError) as refused:
        decide_file(on_disk(kind=kind), None, File(path=PATH, content=b""))
    assert refused.value.what == f"{PATH} is a {kind.value}, not a file"
    assert "move it" in refused.value.remedy


def test_a_change_carries_the_lifetime():
    assert decide_file(None, None, File(path=PATH, content=b"", lifetime=Lifetime.EPHEMERAL)).lifetime is Lifetime.EPHEMERAL


@given(content=st.binary(max_size=80), found=st.none() | st.binary(max_size=80), show=st.sampled_from(Show))
def test_a_decision_is_made_for_any_bytes_and_agrees_with_equality(content, found, show):
    state = None if found is None else on_disk()
    change = decide_file(state, found, File(path=PATH, content=content, show=show))
    assert change.action is (CREATE if found is None else NONE if found == content else UPDATE)
    assert show is Show.DIFF or change.diff == ""


@pytest.mark.parametrize(
    ("found", "more", "action", "reason"),
    [
        (None, {}, CREATE, "mode 0755"),
        (None, {"mode": 0o700}, CREATE, "mode 0700"),
        (on_disk(0o700, Kind.DIRECTORY), {}, NONE, ""),
        (on_disk(0o755, Kind.DIRECTORY), {"mode": 0o700, "enforce": True}, UPDATE, "mode 0755 instead of 0700"),
        (on_disk(0o700, Kind.DIRECTORY), {"mode": 0o700, "enforce": True}, NONE, ""),
        (on_disk(0o700, Kind.DIRECTORY, owner=5), {"owner": 6}, UPDATE, "owner 5 instead of 6"),
    ],
)
def test_a_directory_keeps_its_mode_unless_it_is_enforced(found, more, action, reason):
    change = decide_directory(found, Directory(path=PATH.parent, **more))
    assert (change.action, change.reason) == (action, reason)
    assert change.target == "directory /etc/kubernetes/manifests"


@pytest.mark.parametrize("kind", [Kind.FILE, Kind.LINK])
def test_something_other_than_a_directory_is_refused(kind):
    with pytest.raises(HostError, match=f"is a {kind.value}, not a directory"):
        decide_directory(on_disk(kind=kind), Directory(path=PATH))


RUNS, STOPPED = ServiceState(running=True, enabled=True), ServiceState(running=False, enabled=False)
STALE = ServiceState(running=True, enabled=True, stale=True)


@pytest.mark.parametrize(
    ("found", "more", "verbs"),
    [
        (RUNS, {}, ()),
        (RUNS, {"restart": True}, ("restart",)),
        (RUNS, {"running": False}, ("stop",)),
        (RUNS, {"running": False, "restart": True}, ("stop",)),
        (RUNS, {"enabled": True}, ()),
        (RUNS, {"enabled": False}, ("disable",)),
        (STOPPED, {}, ("start",)),
        (STOPPED, {"restart": True}, ("restart",)),
        (STOPPED, {"running": False}, ()),
        (STOPPED, {"enabled": True}, ("enable", "start")),
        (None, {}, ("start",)),
        (None, {"running": False}, ("stop",)),
        (None, {"enabled": True, "restart": True}, ("enable", "restart")),
        (STALE, {}, ("reload", "restart")),
        (STALE, {"running": False}, ("reload", "stop")),
    ],
)
def test_a_service_gets_only_necessary_commands(found, more, verbs):
    desired = Service(name="kubelet", **more)
    change = decide_service(found, desired)
    assert service_verbs(found, desired) == verbs
    assert (change.action, change.reason) == (UPDATE if verbs else NONE, ", ".join(verbs))
    assert change.target == "service kubelet"


@pytest.mark.parametrize(
    ("found", "action", "target"),
    [
        (None, NONE, "file /etc/kubernetes/x"),
        (on_disk(), DELETE, "file /etc/kubernetes/x"),
        (on_disk(kind=Kind.DIRECTORY), DELETE, "directory /etc/kubernetes/x"),
        (on_disk(kind=Kind.LINK), DELETE, "symbolic link /etc/kubernetes/x"),
    ],
)
def test_existing_files_are_removed(found, action, target):
    change = decide_removal(found, PurePosixPath("/etc/kubernetes/x"), layout=Layout())
    assert (change.action, change.target) == (action, target)


@pytest.mark.parametrize("path", ["/", "/etc", "/etc/kubernetesx", "/var/lib", "/etc/kubernetes/../passwd", "/home/user/.kube/config"])
def test_only_paths_of_the_machine_are_removed(path):
    with pytest.raises(HostError, match="is not ours to remove"):
        decide_removal(on_disk(kind=Kind.DIRECTORY), PurePosixPath(path), layout=Layout())
