"""Files that are replaced together: what is stored of them, what a killed run leaves, and how a failed one is reverted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import ComponentFailed, HostError, WaitTimeout
from kubewright.base.events import Line, RecordingReporter
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.host.real import RealHost
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import Form, State
from kubewright.lifecycle.steps.replacement import Replacement, carry_out, take_back

NAMES = ("etcd", "kube-apiserver", "kube-scheduler")
START = datetime(2026, 11, 24, 12, tzinfo=UTC)


class Box:
    """A machine with three manifests; the last one is new with the operation."""

    def __init__(self, root: Path) -> None:
        layout = Layout.below(PurePosixPath(root))
        self.host = RealHost(layout=layout, files=Files())
        self.host.ensure(File(path=layout.kubeconfig("kubelet"), content=b"this machine is part of a cluster"))
        self.runs = 0
        self.made = 0
        self.renews = False
        self.proved: list[str] = []
        self.restored: list[list[str | None]] = []
        self.prepared: list[str] = []
        self.fails: dict[str, BaseException] = {}
        for name in NAMES[:2]:
            self.host.ensure(File(path=layout.manifest(name), content=f"old {name}".encode(), mode=0o640, directory_mode=0o700))

    def path(self, name: str) -> PurePosixPath:
        return self.host.layout.manifest(name)

    def prepare(self, *, goal: str = "v2", operation: str = "upgrade"):
        self.runs += 1
        files = [File(path=self.path(name), content=f"{goal} {name}".encode()) for name in NAMES]
        at = START + timedelta(seconds=self.runs)
        return checkpoint.prepare(
            self.host, operation=operation, goal=goal, files=files, at=at, renewed=self.renew if self.renews else dict
        )

    def renew(self) -> dict[str, list[File]]:
        """Create another key and certificate of the API server."""
        self.made += 1
        paths = (self.host.layout.key("apiserver"), self.host.layout.certificate("apiserver"))
        return {"apiserver": [File(path=path, content=f"{path.suffix} {self.made}".encode(), mode=0o600) for path in paths]}

    def pair(self) -> list[str]:
        paths = (self.host.layout.key("apiserver"), self.host.layout.certificate("apiserver"))
        return [(self.host.read(path) or b"").decode() for path in paths]

    def steps(self) -> list[Replacement]:
        return [
            Replacement(
                name=name,
                targets=(self.path(name),),
                before=lambda name=name: self.prepared.append(name) or (),
                prove=self._proof(name),
                prove_old=self._proof(f"old {name}"),
            )
            for name in NAMES
        ]

    def _proof(self, name: str):
        def prove():
            self.proved.append(name)
            if name.startswith("old"):
                self.restored.append(self.contents())
            if name in self.fails:
                raise self.fails[name]
            return ()

        return prove

    def carry_out(self, found, reporter=None, **more: object):
        return list(carry_out(self.host, found, self.steps(), reporter=reporter or RecordingReporter(), topic="upgrade", **more))

    def contents(self) -> list[str | None]:
        found = [self.host.read(self.path(name)) for name in NAMES]
        return [None if content is None else content.decode() for content in found]

    def modes(self) -> list[int]:
        return [state.mode for name in NAMES if (state := self.host.state(self.path(name)))]

    def states(self) -> list[State]:
        return [found.state for found in checkpoint.every(self.host)]


OLD = ["old etcd", "old kube-apiserver", None]
NEW = [f"v2 {name}" for name in NAMES]


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def test_files_are_replaced_in_order_and_each_is_verified(box):
    changes = box.carry_out(box.prepare())
    assert (box.contents(), len(changes), box.proved, box.states()) == (NEW, 3, list(NAMES), [State.DONE])
    assert box.modes() == [0o600] * 3


def test_preparing_changes_nothing_and_is_for_root_only(box):
    found = box.prepare()
    assert (box.contents(), box.states()) == (OLD, [State.PREPARED])
    below = sorted(Path(found.directory).rglob("*"))
    assert len(below) == 2 + 2 + 3 + 2  # directories, old, new, plan and state
    assert {oct(path.stat().st_mode & 0o777) for path in below if path.is_file()} == {"0o600"}
    assert {oct(path.stat().st_mode & 0o777) for path in (Path(found.directory), Path(found.directory).parent)} == {"0o700"}


@pytest.mark.parametrize("failing", NAMES)
def test_a_failing_step_restores_all_files_in_order(box, failing):
    box.fails[failing] = ComponentFailed(f"{failing} ended", detail="its last words", remedy="look at the image")
    reporter = RecordingReporter()
    with pytest.raises(HostError, match="this machine is back in its earlier state") as caught:
        box.carry_out(box.prepare(), reporter)
    begun = list(NAMES[: NAMES.index(failing) + 1])
    assert box.proved == [*begun, *(f"old {name}" for name in begun)]
    assert box.restored == [[*OLD[:count], *NEW[count : len(begun)], *OLD[len(begun) :]] for count in range(1, len(begun) + 1)]
    assert (box.contents(), box.modes(), box.states()) == (OLD, [0o640] * 2, [State.ROLLED_BACK])
    assert ("its last words" in caught.value.detail, caught.value.remedy) == (True, "look at the image")
    texts = [event.text for event in reporter.events if isinstance(event, Line)]
    assert texts == [f"{failing} failed: restoring the earlier state", "The earlier state has been restored"]


def test_a_failing_rollback_is_reported_and_stays_in_progress(box):
    box.fails = {"kube-apiserver": WaitTimeout("no answer"), "old kube-apiserver": WaitTimeout("still no answer")}
    with pytest.raises(HostError, match="could not be brought back") as caught:
        box.carry_out(box.prepare())
    assert all(text in caught.value.detail for text in ("no answer", "still no answer"))
    assert box.states() == [State.IN_PROGRESS]


def test_a_signal_restores_all_files_and_is_raised_again(box):
    box.fails["kube-apiserver"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        box.carry_out(box.prepare())
    assert (box.contents(), box.states()) == (OLD, [State.ROLLED_BACK])


@pytest.mark.parametrize("written", range(len(NAMES) + 1))
def test_a_killed_run_is_continued_by_the_same_command(box, written):
    found = checkpoint.mark(box.host, box.prepare(), State.IN_PROGRESS)
    for name in NAMES[:written]:
        checkpoint.put_new(box.host, found, box.path(name))
    again = box.prepare()
    assert again == found
    box.carry_out(again)
    assert (box.contents(), box.proved, box.states()) == (NEW, list(NAMES), [State.DONE])


def test_a_second_run_changes_and_verifies_nothing(box):
    box.carry_out(box.prepare())
    box.proved.clear()
    assert (box.carry_out(box.prepare()), box.proved, box.contents()) == ([], [], NEW)


def test_a_finished_operation_is_rolled_back_from_its_checkpoint(box):
    box.carry_out(box.prepare())
    found = checkpoint.every(box.host)[-1]
    assert len(take_back(box.host, found, box.steps())) == 3
    assert (box.contents(), box.states()) == (OLD, [State.ROLLED_BACK])


def test_another_operation_is_refused_while_one_is_in_progress(box):
    checkpoint.mark(box.host, box.prepare(), State.IN_PROGRESS)
    for other in ({"goal": "v3"}, {"operation": "reconfigure"}):
        with pytest.raises(HostError, match="interrupted: upgrade to v2"):
            box.prepare(**other)
    assert box.states() == [State.IN_PROGRESS]


def test_a_prepared_or_incomplete_checkpoint_is_replaced(box):
    first = box.prepare()
    Path(first.directory, "state").rename(Path(first.directory, "lost"))
    box.prepare(goal="v3")
    second = box.prepare()
    assert [found.directory for found in checkpoint.every(box.host)] == [second.directory]
    assert box.host.entries(checkpoint.parent(box.host)) == [second.directory]


def test_files_changed_by_others_are_not_overwritten(box):
    found = box.prepare()
    box.host.ensure(File(path=box.path("etcd"), content=b"by hand"))
    assert [checkpoint.form(box.host, swap) for swap in found.swaps] == [Form.NEITHER, Form.OLD, Form.OLD]
    with pytest.raises(HostError, match=r"files have been changed.*etcd\.yaml"):
        box.carry_out(found)
    assert (box.contents()[1:], box.states()) == (OLD[1:], [State.PREPARED])


def test_the_last_finished_checkpoints_stay(box):
    for goal in ("v2", "v3", "v4", "v5", "v6"):
        box.carry_out(box.prepare(goal=goal))
    assert [found.goal for found in checkpoint.every(box.host)] == ["v4", "v5", "v6"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("plan.json", b"{"),
        ("plan.json", b"[]"),
        ("plan.json", json.dumps({"format": 2}).encode()),
        ("plan.json", json.dumps({"format": 1, "operation": "upgrade", "goal": 2, "swaps": []}).encode()),
        ("plan.json", json.dumps({"format": 1, "operation": "a", "goal": "b", "swaps": [{"target": "etc"}]}).encode()),
        ("state", b"half"),
    ],
)
def test_a_damaged_checkpoint_is_reported(box, file, content):
    found = box.prepare()
    Path(found.directory, file).write_bytes(content)
    with pytest.raises(HostError, match=f"{found.directory} is damaged"):
        box.prepare()


def test_damaged_contents_are_not_restored(box):
    found = box.prepare()
    Path(found.directory, "new", "1").write_bytes(b"v2 kube-apiserve")
    with pytest.raises(HostError, match="back in its earlier state") as caught:
        box.carry_out(found)
    assert "is damaged" in caught.value.detail
    assert box.contents() == OLD


def test_verified_components_must_stay_up_until_the_end(box):
    with pytest.raises(HostError, match="upgrade failed; this machine is back in its earlier state") as caught:
        box.carry_out(box.prepare(), settle=lambda: (_ for _ in ()).throw(ComponentFailed("etcd does not stay up")))
    assert "etcd does not stay up" in str(caught.value)
    assert box.contents() == OLD
    assert box.proved[-3:] == [f"old {name}" for name in NAMES]
    settled = []
    for _ in range(2):
        box.carry_out(box.prepare(), settle=lambda: settled.append(1) or ())
    assert (settled, box.contents()) == ([1], NEW)
    assert box.prepared == [*NAMES, *NAMES]


def test_a_parked_file_is_known_while_it_is_away(box):
    files = [File(path=box.path("etcd"), content=b"new"), File(path=box.path("kube-apiserver"), content=b"old kube-apiserver")]
    parks = [file.path for file in files]
    found = checkpoint.prepare(box.host, operation="etcd-restore", goal="x", files=files, at=START, parks=parks)
    assert [checkpoint.form(box.host, swap) for swap in found.swaps] == [Form.OLD, Form.NEW]
    checkpoint.park(box.host, checkpoint.mark(box.host, found, State.IN_PROGRESS))
    assert box.contents() == [None, None, None]
    again = checkpoint.prepare(box.host, operation="etcd-restore", goal="x", files=files, at=START + timedelta(hours=1), parks=parks)
    assert (again.directory, [checkpoint.form(box.host, swap) for swap in again.swaps]) == (found.directory, [Form.PARKED] * 2)
    checkpoint.require_known(box.host, again)
    with pytest.raises(HostError, match="was interrupted: etcd-restore to x") as caught:
        checkpoint.require_none_in_progress(box.host)
    assert "run the same command again" in caught.value.remedy
    changes = [checkpoint.put_new(box.host, again, swap.target) for swap in again.swaps]
    assert ([change.action for change in changes], box.contents()) == ([Action.UPDATE] * 2, ["new", "old kube-apiserver", None])
    assert ("-old etcd" in changes[0].diff, changes[1].reason) == (True, "mode 0640 instead of 0600")


def test_a_file_that_is_missing_without_being_parked_counts_as_removed_by_others(box):
    found = box.prepare()
    box.host.remove(box.path("etcd"))
    assert checkpoint.form(box.host, found.swaps[0]) is Form.NEITHER


def test_other_effects_of_a_step_are_undone_before_its_files_are_restored(box):
    done: list[str] = []

    def noted(what: str, error: Exception | None = None):
        def note():
            done.append(f"{what}, with {box.contents()[0]}")
            if error:
                raise error
            return ()

        return note

    step = Replacement(
        name="etcd",
        targets=(box.path("etcd"),),
        before=noted("before"),
        undo=noted("undo"),
        prove=noted("prove", WaitTimeout("no answer")),
        prove_old=noted("prove old"),
        required=True,
    )
    files = [File(path=box.path("etcd"), content=b"old etcd", mode=0o640)]
    found = checkpoint.prepare(box.host, operation="etcd-restore", goal="x", files=files, at=START)
    with pytest.raises(HostError, match="back in its earlier state"):
        list(carry_out(box.host, found, [step], reporter=RecordingReporter(), topic="etcd"))
    assert done == [f"{what}, with old etcd" for what in ("before", "prove", "undo", "prove old")]


def begun(box: Box):
    """Begin an operation that renews a certificate, and return its checkpoint."""
    box.renews = True
    for file in box.renew()["apiserver"]:
        box.host.ensure(file)
    return checkpoint.mark(box.host, box.prepare(), State.IN_PROGRESS)


@pytest.mark.parametrize("replaced", range(3))
def test_a_half_replaced_pair_is_completed(box, replaced):
    found = begun(box)
    for swap in found.pairs["apiserver"][:replaced]:
        checkpoint.put_new(box.host, found, swap.target)
    changes = list(checkpoint.complete_pairs(box.host, found))
    side = 2 if replaced else 1
    assert (len([one for one in changes if one]), box.pair()) == (replaced == 1, [f".key {side}", f".crt {side}"])
    assert list(checkpoint.complete_pairs(box.host, found)) == []


def test_a_renewed_pair_is_created_once_stays_and_leaves_no_key_behind(box):
    found = begun(box)
    assert (box.prepare(), box.made) == (found, 2)
    checkpoint.put_pair(box.host, found, "apiserver")
    box.fails["etcd"] = ComponentFailed("etcd ended")
    with pytest.raises(HostError, match="back in its earlier state"):
        box.carry_out(found)
    assert (box.contents(), box.pair()) == (OLD, [".key 2", ".crt 2"])
    kept = [path.read_text() for path in Path(found.directory).rglob("*") if path.is_file()]
    assert [text for text in kept if text.startswith((".key", ".crt"))] == []
    assert [one.state for one in checkpoint.every(box.host)] == [State.ROLLED_BACK]


def test_a_certificate_renewed_by_others_since_stays(box):
    found = begun(box)
    for file in box.renew()["apiserver"]:
        box.host.ensure(file)
    assert (checkpoint.put_pair(box.host, found, "apiserver"), box.pair()) == ([], [".key 3", ".crt 3"])
    box.carry_out(found)
    assert (box.contents(), box.pair()) == (NEW, [".key 3", ".crt 3"])
