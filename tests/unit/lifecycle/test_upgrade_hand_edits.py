"""Manual changes of static pods: shown before an upgrade replaces them, or kept as patches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from init_kit import names
from upgrade_kit import NEW, OLD, PODS, ControlPlane

from kubewright.base import yaml
from kubewright.base.errors import DocumentError, HostError, UsageError
from kubewright.lifecycle.connections import Mode

KEPT = {"keep_changes": True}


@pytest.fixture
def box(tmp_path):
    return ControlPlane(tmp_path)


def patches(tmp_path, value):
    directory = tmp_path / "patches"
    directory.mkdir(mode=0o700)
    (directory / "kube-scheduler+json.json").write_text(json.dumps([{"op": "add", "path": "/spec/containers/0/command/-", "value": value}]))
    return str(directory)


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ([{"op": "replace", "path": "/spec/containers", "value": []}], "spec.containers: Required value"),
        ([{"op": "remove", "path": "/spec/containers/0/image"}], "spec.containers[0].image: Required value"),
        ([{"op": "remove", "path": "/spec/volumes"}], 'spec.containers[0].volumeMounts[0].name: Not found: "kubeconfig"'),
    ],
)
def test_a_patch_with_which_no_pod_can_run_is_refused_before_anything_changes(box, tmp_path, operations, why):
    directory = tmp_path / "patches"
    directory.mkdir(mode=0o700)
    (directory / "kube-scheduler+json.json").write_text(json.dumps(operations))
    before, starts = box.snapshot(), list(box.runtime.starts)
    with pytest.raises(DocumentError, match="with its patches, kube-scheduler is no static pod") as caught:
        box.upgrade(patches=str(directory))
    assert why in str(caught.value)
    after = box.snapshot()
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= {"run", "run/machine.lock"}
    assert box.runtime.starts == starts


def edit(box, name, old, new):
    """Change a manifest with an editor."""
    path = Path(box.layout.manifest(name))
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    return path


def command(box, name):
    return yaml.load(box.text(name), source=name)["spec"]["containers"][0]["command"]


def test_manual_changes_are_shown_before_they_are_lost(box, tmp_path):
    box.upgrade(version=OLD, patches=patches(tmp_path, "--v=3"))
    assert box.lines("upgrade/manifests") == []
    path = edit(box, "kube-scheduler", "--v=3", "--v=7")
    for name in ("etcd", "kube-apiserver"):  # as `init` writes them with a longer timeout
        edit(box, name, "failureThreshold: 24", "failureThreshold: 60")

    def answer(_: str) -> str:
        (line,) = box.lines("upgrade/manifests")
        assert line.startswith(f'Manual changes of "{path}" are not kept')
        assert [text for text in line.splitlines()[3:] if text[:1] in "+-"] == ["-    - --v=3", "+    - --v=7"]
        return "n"

    with pytest.raises(UsageError, match="nothing was upgraded"):
        box.upgrade(ask=answer)


def test_changes_are_kept_as_patches_of_this_upgrade_and_later_ones(box, tmp_path):
    box.upgrade(version=OLD, patches=patches(tmp_path, "--v=3"))
    edit(box, "kube-scheduler", "--v=3", "--v=7")
    edit(box, "kube-apiserver", "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --audit-log-maxage=1\n")
    edit(box, "kube-controller-manager", "    - --leader-elect=true\n", "")
    box.upgrade(options=KEPT)
    assert box.tags()[1:] == [NEW] * 3
    assert ("--v=7" in command(box, "kube-scheduler"), "--v=3" in command(box, "kube-scheduler")) == (True, False)
    assert "--audit-log-maxage=1" in command(box, "kube-apiserver")
    assert "--leader-elect=true" not in command(box, "kube-controller-manager")
    files = sorted(path.name for path in Path(box.layout.patches).iterdir())
    assert files == [*(f"{name}~kept+json.yaml" for name in PODS[1:3]), "kube-scheduler+json.json", "kube-scheduler~kept+json.yaml"]
    shown = box.lines("upgrade/manifests")
    assert [line.partition(" are ")[2].partition(":")[0] for line in shown] == ["kept as patches"] * 3
    assert names(box.upgrade().changes) == []
    edit(box, "kube-scheduler", "--v=7", "--v=8")
    box.upgrade(version=OLD, force_upgrade=True, options=KEPT)
    assert "--v=8" in command(box, "kube-scheduler")


def test_a_patch_does_not_apply_where_something_else_is_at_its_place(box):
    edit(box, "kube-scheduler", "--leader-elect=true", "--leader-elect=false")
    box.upgrade(options=KEPT)
    (path,) = Path(box.layout.patches).iterdir()
    path.write_text(path.read_text().replace("value: --leader-elect=true", "value: --an-earlier-default"))
    before = box.manifests()
    with pytest.raises(DocumentError, match="the patch of type json does not fit kube-scheduler"):
        box.upgrade(version=OLD, force_upgrade=True)
    assert box.manifests() == before


def test_a_plan_shows_that_changes_are_kept_and_writes_nothing(box):
    edit(box, "kube-scheduler", "--leader-elect=true", "--leader-elect=false")
    before = box.snapshot()
    changes = box.upgrade(mode=Mode.PLAN, options=KEPT).plan.changes
    assert f"file {box.layout.patches}/kube-scheduler~kept+json.yaml" in names(changes)
    (scheduler,) = (one for one in changes if one.target == f"file {box.layout.manifest('kube-scheduler')}")
    assert "--leader-elect" not in "".join(line for line in scheduler.diff.splitlines() if line[:1] in "+-")
    assert box.snapshot() == before


def test_changes_that_no_patch_can_make_stop_the_upgrade(box):
    edit(box, "kube-scheduler", "spec:\n", "spec:\n  aFieldThatNoPodHas: 1\n")
    before = box.manifests()
    with pytest.raises(HostError, match="cannot be kept as patches: it has fields that no Pod has"):
        box.upgrade(options=KEPT)
    assert (box.manifests(), Path(box.layout.patches).exists()) == (before, False)


def test_other_patches_cannot_be_given_at_the_same_time(box, tmp_path):
    with pytest.raises(UsageError, match="--keep-changes adds to the patches of the last run"):
        box.upgrade(patches=patches(tmp_path, "--v=3"), options=KEPT)
