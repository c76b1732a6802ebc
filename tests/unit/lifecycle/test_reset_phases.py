"""What reset removes from a machine, in which order, and what it does when a step fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reset_kit import OTHER, OWN, Box, etcd_manifest, names, pod

from kubewright.base.change import Action
from kubewright.base.clock import FakeClock
from kubewright.base.errors import CheckFailed, HostError, Interrupted, Locked, RuntimeSilent, RuntimeUnavailable, Unreachable, UsageError
from kubewright.host.locks import Lock
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import LOCK
from kubewright.lifecycle.machine_record import MachineRecord
from kubewright.lifecycle.steps import checkpoint

EMPTY = ["cni", "cni/f", "kubelet", "kubernetes", "kubernetes/manifests", "kubernetes/pki"]
"""What is left on a worker: kubeadm's directories, and what was not requested to be removed."""


@pytest.fixture
def box(tmp_path, monkeypatch):
    return Box(tmp_path).install(monkeypatch)


def test_a_worker_is_reset(box):
    box.make_worker().write("etcd/theirs", "precious")
    outcome = box.reset()
    assert box.left() == sorted([*EMPTY, "etcd", "etcd/theirs"])
    assert box.services.stopped == 1
    assert box.runtime.pods == []
    assert box.etcd_asked == []
    assert names(outcome.changes)[:4] == [
        "service kubelet",
        *(f"pod kube-system/{name}" for name in ("coredns-a", "etcd-node1", "kube-apiserver-node1")),
    ]
    outcome.require_complete()
    assert f'"{box.layout.etcd_data}" is left as it is: nothing on this machine says that its etcd is of this cluster' in box.lines()


def test_the_member_leaves_and_its_data_is_removed(box):
    box.make_control_plane()
    outcome = box.reset(only=("remove-etcd-member",))
    assert box.etcd.actions == [("remove", f"node1 at {OWN}")]
    assert box.etcd_asked == [("https://127.0.0.1:2379", "https://10.0.0.2:2379")]
    assert names(outcome.changes) == [f"member node1 at {OWN}", f"contents of {box.layout.etcd_data}"]
    assert (box.root / "kubernetes/manifests/etcd.yaml").exists()
    assert list(Path(box.layout.etcd_data).iterdir()) == []


def test_a_control_plane_is_reset_and_a_second_reset_has_nothing_to_do(box):
    box.make_control_plane().reset().require_complete()
    assert box.left() == sorted([*EMPTY, "etcd"])
    assert len(box.asked) == 1
    again = Box(box.root, services=box.services)
    again.runtime.pods.clear()
    outcome = again.reset()
    assert (outcome.changes, outcome.failures, again.asked) == ((), (), [])
    assert again.lines() == ["There is nothing of a cluster on this machine"]


def test_the_kubeconfig_of_our_controllers_is_removed_from_a_machine_that_has_it(box):
    box.make_control_plane().write("kubernetes/kubewright-controllers.conf", "a key that may approve certificates")
    box.reset().require_complete()
    assert box.left() == sorted([*EMPTY, "etcd"])


def test_an_unprivileged_user_gets_only_that_error(box, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CheckFailed, match="preflight checks failed"):
        box.make_worker().run(Mode.APPLY)
    assert (box.lines(), box.lines("preflight"), box.asked) == ([], ["Running pre-flight checks"], [])


def test_the_steps_are_reported_as_by_kubeadm(box):
    """kubeadm's lines, with existing files only: it also names files that do not exist."""
    layout = box.layout
    box.make_control_plane().mounts.append(layout.kubelet / "pods/a")
    box.reset()
    assert box.lines()[1:] == [
        f"Removed the member node1 at {OWN} from the etcd cluster",
        f"Deleted contents of the etcd data directory: {layout.etcd_data}",
        "Stopping the kubelet service",
        f"Deleting contents of directories: [{layout.manifests} {layout.kubelet} {layout.pki}]",
        "Deleting files: ["
        + " ".join(str(layout.kubeconfig(name)) for name in ["admin", "super-admin", "kubelet", "controller-manager", "scheduler"])
        + "]",
        f'Unmounting mounted directories in "{layout.kubelet}"',
    ]
    assert box.lines("preflight") == ["Running pre-flight checks"]
    assert "--cleanup-cni" in box.lines("")[0]


def test_the_list_comes_before_the_question(box):
    box.make_control_plane().answer = "n\n"
    box.mounts.append(box.layout.kubelet / "pods/a")
    before = box.left()
    with pytest.raises(UsageError, match="the answer was not y"):
        box.reset()
    assert box.asked == ["[reset] Are you sure you want to proceed? [y/N]: "]
    (listed,) = box.lines()
    assert [line.partition(":")[0].strip() for line in listed.splitlines()] == [
        "This will be removed from this machine",
        "service that is stopped",
        "pods",
        "mounts",
        "etcd member",
        "contents of directories",
        "files",
    ]
    assert f"files: {box.layout.kubeconfig('admin')}, {box.layout.kubeconfig('super-admin')}, " in listed
    assert box.left() == before
    assert box.services.running


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [("y", True), ("Y\n", True), ("yes\n", True), ("YES", True), (" y\n", False), ("", False), ("yep\n", False), ("n\n", False)],
)
def test_only_a_yes_continues(box, answer, goes_on):
    box.make_worker().answer = answer
    if goes_on:
        box.reset()
    else:
        with pytest.raises(UsageError):
            box.reset()
    assert box.services.running is not goes_on


def test_force_does_not_ask(box):
    box.make_worker().reset(text="force: true\n")
    assert box.asked == []
    assert not box.services.running


def test_files_of_a_hub_stay(box):
    """By default a hub has its state, and the key for it, in a directory below the same one."""
    host = box.make_worker().machine(box.layout)
    machine_record.save(host, MachineRecord(workflow="join", configuration="kind: JoinConfiguration\n"))
    for name in ("node-join.key", "node-tunnel.key", "node-tunnel-next.key", "checkpoints/1/old/0", "hub/state.db", "hub/state.key"):
        box.write(f"state/{name}", "precious")
    box.reset().require_complete()
    assert sorted(path.name for path in (box.root / "state").rglob("*")) == ["hub", "state.db", "state.key"]
    assert any(str(box.layout.machine_record) in line for line in box.lines())
    again = Box(box.root, services=box.services)
    again.runtime.pods.clear()
    again.reset()
    assert again.lines() == ["There is nothing of a cluster on this machine"]


def test_only_force_resets_a_machine_on_which_an_upgrade_was_interrupted(box):
    host = box.make_worker().machine(box.layout)
    found = checkpoint.prepare(host, operation="upgrade", goal="v1.36.4", files=[], at=FakeClock().now())
    checkpoint.mark(host, found, checkpoint.State.IN_PROGRESS)
    with pytest.raises(HostError, match=r"interrupted: upgrade to v1\.36\.4"):
        box.reset()
    unit = box.root / "etc/systemd/system/kubewright-recover.service"
    box.write(str(unit.relative_to(box.root)), "completes it at boot")
    box.reset(text="force: true\n").require_complete()
    assert ((box.root / "state").exists(), unit.exists(), box.services.disabled) == (False, False, ["kubewright-recover"])


def test_another_running_kubewright_excludes_reset(box):
    box.make_worker()
    (box.root / "run").mkdir()
    with Lock(box.layout.run / LOCK, doing="init"), pytest.raises(Locked):
        box.reset()
    assert box.services.running


def test_an_external_etcd_keeps_its_data(box):
    box.make_control_plane().write(
        "kubernetes/manifests/kube-apiserver.yaml", pod("kube-apiserver", ["--etcd-servers=https://10.9.9.9:2379"])
    )
    (box.root / "kubernetes/manifests/etcd.yaml").unlink()
    box.reset().require_complete()
    assert (box.root / "etcd/member/wal/0.wal").exists()
    assert box.etcd_asked == []


def test_an_etcd_of_this_machine_outside_of_the_cluster_keeps_its_data(box):
    box.make_control_plane()
    (box.root / "kubernetes/manifests/etcd.yaml").unlink()
    (box.root / "kubernetes/pki/etcd/server.crt").unlink()
    box.reset().require_complete()
    assert (box.root / "etcd/member/wal/0.wal").exists()


def test_the_data_directory_comes_from_the_manifest(box):
    box.make_control_plane().write("data/member/db")
    box.write("kubernetes/manifests/etcd.yaml", etcd_manifest(box.root / "data"))
    box.reset().require_complete()
    assert list((box.root / "data").iterdir()) == []
    assert (box.root / "etcd/member/wal/0.wal").exists()


def test_an_unreadable_manifest_keeps_the_data(box):
    box.make_control_plane().write("kubernetes/manifests/etcd.yaml", "{")
    box.reset()
    assert (box.root / "etcd/member/wal/0.wal").exists()
    assert any("etcd.yaml" in text for text in box.warnings())


def test_a_learner_without_a_manifest_is_found_in_the_record_and_leaves(box):
    """A join that ended between adding the member and writing its manifest: there is no Node and no pod of etcd on this machine."""
    box.make_control_plane()
    for name in ("etcd", "kube-apiserver"):
        (box.root / f"kubernetes/manifests/{name}.yaml").unlink()
    text = "kind: JoinConfiguration\ncontrolPlane: {localAPIEndpoint: {advertiseAddress: 10.0.0.1, bindPort: 6443}}\n"
    machine_record.save(box.machine(box.layout), MachineRecord(workflow="join", configuration=text))
    box.reset().require_complete()
    assert box.etcd_asked == [()]
    assert box.etcd.actions == [("remove", f"node1 at {OWN}")]
    assert not (box.root / "state").exists()


def test_a_learner_leaves_like_a_voting_member(box):
    """A join has a separate static pod for that, until etcd's exists."""
    box.make_control_plane().write("kubernetes/manifests/etcd-learner.yaml", etcd_manifest(box.layout.etcd_data))
    (box.root / "kubernetes/manifests/etcd.yaml").unlink()
    box.reset().require_complete()
    assert box.etcd_asked == [("https://127.0.0.1:2379", "https://10.0.0.2:2379")]
    assert box.left() == sorted([*EMPTY, "etcd"])


def test_without_a_manifest_the_member_is_found_through_the_api_server(box):
    box.make_control_plane()
    (box.root / "kubernetes/manifests/etcd.yaml").unlink()
    box.reset().require_complete()
    assert box.etcd.actions == [("remove", f"node1 at {OWN}")]
    assert list(Path(box.layout.etcd_data).iterdir()) == []


def test_the_only_member_stays_and_its_data_is_removed(box):
    box.make_control_plane().etcd._members = box.etcd._members[:1]
    box.reset().require_complete()
    assert box.etcd.actions == []
    assert list(Path(box.layout.etcd_data).iterdir()) == []


def test_files_that_etcd_writes_at_its_end_are_removed_too(box, monkeypatch):
    box.make_control_plane()
    remove = box.runtime.remove_sandbox

    def last_words(sandbox, /):
        box.write(f"etcd/member/wal/{sandbox.name}")
        return remove(sandbox)

    monkeypatch.setattr(box.runtime, "remove_sandbox", last_words)
    box.reset().require_complete()
    assert list(Path(box.layout.etcd_data).iterdir()) == []


def test_an_etcd_that_does_not_answer_is_a_warning(box):
    box.make_control_plane().etcd_fails = Unreachable("nobody answers")
    box.reset().require_complete()
    (warning,) = box.warnings()
    assert warning.startswith(f"the etcd member {OWN} may still be in its cluster, because etcd could not be reached: nobody answers.")
    assert box.left() == sorted([*EMPTY, "etcd"])


def test_all_mounts_are_tried_in_reverse_order(box):
    kubelet = box.make_worker().layout.kubelet
    box.mounts += [kubelet / "a", kubelet / "a/b", kubelet / "c"]
    box.busy.add(kubelet / "a/b")
    outcome = box.reset(text="unmountFlags: [MNT_FORCE, UMOUNT_NOFOLLOW]\n")
    assert [path for path, _ in box.unmounted] == [kubelet / "c", kubelet / "a/b", kubelet / "a"]
    assert {flags for _, flags in box.unmounted} == {("MNT_FORCE", "UMOUNT_NOFOLLOW")}
    with pytest.raises(HostError) as failed:
        outcome.require_complete()
    assert f"{kubelet}/a/b cannot be unmounted: Device or resource busy" in failed.value.detail
    assert failed.value.remedy == "end what uses it; then run the same command again: it does the remaining steps"
    assert box.left() == EMPTY


def test_every_step_is_tried_and_failures_are_reported(box):
    box.make_control_plane()
    box.runtime.stays.add("coredns-a")
    box.busy.add(busy := box.layout.kubelet / "a")
    box.mounts.append(busy)
    outcome = box.reset()
    assert [error.what for error in outcome.failures] == ["not every pod could be removed", "not everything could be unmounted"]
    assert outcome.failures[0].detail == "pod kube-system/coredns-a: coredns-a does not end"
    assert [pod.name for pod in box.runtime.pods] == ["coredns-a"]
    assert box.left() == sorted([*EMPTY, "etcd"])


def test_the_record_of_the_machine_stays_after_a_failure(box):
    box.make_worker()
    machine_record.save(box.machine(box.layout), MachineRecord(workflow="join", configuration="kind: JoinConfiguration\n"))
    box.busy.add(busy := box.layout.kubelet / "a")
    box.mounts.append(busy)
    box.reset()
    assert (box.root / "state/machine.json").exists()
    box.busy.clear()
    box.reset().require_complete()
    assert box.left() == EMPTY


def test_a_kubelet_that_does_not_stop_is_reported_and_pods_are_tried(box):
    box.make_worker().services.refuses = "systemd cannot stop it"
    box.runtime.pods.clear()
    assert [error.what for error in box.reset().failures] == ["systemd cannot stop it"]
    assert box.left() == EMPTY


DETECTED = "unix:///run/containerd/containerd.sock"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("kubelet/instance-config.yaml", 'containerRuntimeEndpoint: "unix://{root}/own.sock"\n'),
        ("kubelet/kubeadm-flags.env", 'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix://{root}/own.sock --v=2"\n'),
        ("kubelet/config.yaml", "containerRuntimeEndpoint: unix://{root}/own.sock\n"),
    ],
)
def test_pods_are_removed_from_the_runtime_that_the_kubelet_uses(box, file, text):
    box.make_worker().write(file, text.format(root=box.root))
    assert box.call().host.layout.cri_socket == DETECTED  # there is no such socket any more
    box.write("own.sock")
    assert box.call().host.layout.cri_socket == f"unix://{box.root}/own.sock"
    assert box.call(text="criSocket: unix:///given.sock\n").host.layout.cri_socket == "unix:///given.sock"
    assert box.call(looks_for_runtime=False).host.layout.cri_socket == "unix:///var/run/containerd/containerd.sock"


@pytest.mark.parametrize("text", ["containerRuntimeEndpoint: own.sock\n", "containerRuntimeEndpoint: 5\n", "{", "- 1\n", "\0"])
def test_files_of_the_kubelet_that_name_no_socket_do_not_prevent_a_reset(box, text):
    box.make_worker().write("kubelet/instance-config.yaml", text)
    assert box.call().host.layout.cri_socket == DETECTED


def test_a_stopped_runtime_is_a_warning(box):
    box.make_worker().runtime.fails = RuntimeUnavailable("no container runtime answers")
    box.reset().require_complete()
    assert box.warnings() == ["pods cannot be removed: no container runtime answers"]
    assert box.left() == EMPTY


@pytest.mark.parametrize("failing", [1, 2, 5])
def test_pods_of_a_slow_runtime_are_removed(box, failing):
    box.make_worker().runtime.fails = RuntimeSilent("no answer within 2 s")
    box.runtime.failing = failing
    box.reset().require_complete()
    assert box.runtime.pods == []
    assert box.warnings() == []
    assert "\tpods: all pods of the container runtime, which has not answered yet" in box.lines()[0].splitlines()


def test_pods_of_a_runtime_that_recovers_meanwhile_are_removed(box):
    box.make_worker().runtime.fails = RuntimeUnavailable("nobody listens")
    box.runtime.failing = 1
    box.reset().require_complete()
    assert box.runtime.pods == []


def test_a_runtime_that_never_answers_is_a_failure_and_the_record_stays(box):
    box.make_worker().runtime.fails = RuntimeSilent("the runtime cannot list its pods", remedy="restart it")
    machine_record.save(box.machine(box.layout), MachineRecord(workflow="join", configuration="kind: JoinConfiguration\n"))
    outcome = box.reset()
    assert [error.what for error in outcome.failures] == ["the runtime cannot list its pods"]
    with pytest.raises(HostError, match="not everything could be reset") as caught:
        outcome.require_complete()
    assert "restart it" in caught.value.remedy
    assert (box.root / "state/machine.json").exists()


def test_a_runtime_that_disappears_with_known_pods_is_a_failure(box, monkeypatch):
    box.make_worker()
    gone = RuntimeUnavailable("nobody listens")
    monkeypatch.setattr(box.services, "stop", lambda _: setattr(box.runtime, "fails", gone))
    assert [error.what for error in box.reset().failures] == ["nobody listens"]


def test_a_run_interrupted_anywhere_is_completed_by_the_next(tmp_path, monkeypatch):
    """Every step is left out in turn, with all that follow it."""
    from kubewright.lifecycle.steps import cleanup

    steps = cleanup.STEPS
    for count in range(len(steps)):
        box = Box(tmp_path / str(count)).install(monkeypatch).make_control_plane()

        def stop(_):
            raise KeyboardInterrupt

        monkeypatch.setattr(cleanup, "STEPS", (*steps[:count], stop))
        with pytest.raises(Interrupted):
            box.reset()
        monkeypatch.setattr(cleanup, "STEPS", steps)
        box.reset().require_complete()
        assert box.left() == sorted([*EMPTY, "etcd"])
        assert box.etcd.actions == [("remove", f"node1 at {OWN}")]


def test_options_remove_only_what_the_list_names(box):
    box.make_worker()
    for name in ("10-a.conflist", "b.conf", "c.json", "calico.kubeconfig", "README", "d.conf.bak"):
        box.write(f"etc/cni/net.d/{name}")
    outcome = box.reset(cleanup_cni=True, cleanup_packet_filter=True)
    assert [path.name for path in sorted((box.root / "etc/cni/net.d").iterdir())] == ["README", "d.conf.bak"]
    assert box.packets.rules == []
    assert "nftables table ip kube-proxy" in names(outcome.changes)
    listed = box.lines()[0]
    assert f"CNI configuration: {box.layout.cni}/10-a.conflist, {box.layout.cni}/b.conf" in listed
    assert "README" not in listed
    assert "packet filter: nftables table ip kube-proxy" in listed
    assert "--cleanup" not in box.lines("")[0]


def test_without_options_cni_and_packet_filter_stay(box):
    box.make_worker().write("etc/cni/net.d/a.conf")
    box.reset()
    assert (box.root / "etc/cni/net.d/a.conf").exists()
    assert len(box.packets.rules) == 1


def test_a_failing_packet_filter_tool_is_reported(box, monkeypatch):
    def fails():
        raise HostError("`nft list tables` failed")

    box.make_worker().packets.found = fails
    assert [error.what for error in box.reset(cleanup_packet_filter=True).failures] == ["`nft list tables` failed"]
    assert box.left() == EMPTY


def test_temporary_files_are_removed_on_request(box):
    box.make_worker().write("kubernetes/tmp/a")
    box.reset()
    assert (box.root / "kubernetes/tmp/a").exists()
    box.make_worker() if not (box.root / "kubernetes/manifests").exists() else None
    box.reset(text="cleanupTmpDir: true\nforce: true\n")
    assert list((box.root / "kubernetes/tmp").iterdir()) == []


def test_a_named_certificate_directory_is_emptied_completely(box):
    box.make_worker().write("mine/other.pem")
    box.reset(text=f"certificatesDir: {box.root}/mine\n")
    assert list((box.root / "mine").iterdir()) == []
    assert (box.root / "kubernetes/pki/ca.crt").exists()


def test_only_files_of_the_cluster_are_removed_from_a_detected_certificate_directory(box):
    box.make_control_plane()
    for name in ("ca.crt", "ca.key", "etcd/server.crt", "sa.pub", "other.pem"):
        box.write(f"ssl/{name}")
    volumes = [{"name": "k8s-certs", "hostPath": {"path": str(box.root / "ssl")}}]
    box.write("kubernetes/manifests/kube-apiserver.yaml", pod("kube-apiserver", [], volumes))
    box.reset().require_complete()
    assert sorted(str(path.relative_to(box.root / "ssl")) for path in (box.root / "ssl").rglob("*")) == ["etcd", "other.pem"]
    assert list((box.root / "kubernetes/pki").iterdir()) == []


def test_users_of_a_rootless_control_plane_are_removed(box):
    box.make_control_plane()
    box.write("kubernetes/manifests/kube-apiserver.yaml", pod("kube-apiserver", [], securityContext={"runAsUser": 100}))
    box.write("etc/passwd", "root:x:0:0::/root:/bin/sh\nkubeadm-kas:x:100:100:::/bin/false\n")
    box.write("etc/group", "root:x:0:\nkubeadm-kas:x:100:kubeadm-kas\n")
    outcome = box.reset()
    outcome.require_complete()
    assert (box.root / "etc/passwd").read_text() == "root:x:0:0::/root:/bin/sh\n"
    assert [change.reason for change in outcome.changes if change.target.startswith("users")] == ["user kubeadm-kas, group kubeadm-kas"]


def test_skipped_phases_remove_nothing(box):
    box.make_control_plane().reset(text="skipPhases: [remove-etcd-member]\n")
    assert (box.root / "etcd/member/wal/0.wal").exists()
    assert box.etcd_asked == []
    assert not (box.root / "kubernetes/admin.conf").exists()


def test_a_plan_lists_what_a_run_does_and_does_nothing(box):
    box.make_control_plane().mounts.append(box.layout.kubelet / "pods/a")
    box.write("etc/cni/net.d/a.conf")
    before = box.left()
    plan = box.plan(cleanup_cni=True, cleanup_packet_filter=True)
    assert box.left() == before
    assert (box.etcd._members, box.services.stopped, len(box.runtime.pods), box.asked, box.unmounted) == (
        list(box.etcd._members),
        0,
        3,
        [],
        [],
    )
    assert len(box.etcd._members) == 2
    assert plan.changes == box.reset(cleanup_cni=True, cleanup_packet_filter=True).changes


def test_a_dry_run_prints_what_kubeadm_prints(box):
    before = box.make_control_plane().left()
    outcome = box.dry_run()
    layout = box.layout
    assert box.lines("dryrun") == [
        "Would remove the etcd member on this node from the etcd cluster",
        f"Would delete contents of the etcd data directory: {layout.etcd_data}",
        "Would stop the kubelet service",
        "Would remove Kubernetes-managed containers",
        f"Would delete contents of directories: [{layout.manifests} {layout.pki}]",
        "Would delete files: ["
        + " ".join(
            str(layout.kubeconfig(name))
            for name in ["admin", "super-admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler"]
        )
        + "]",
        f'Would unmount mounted directories in "{layout.kubelet}"',
    ]
    assert box.lines() == []
    assert box.left() == before
    assert {change.action for change in outcome.changes} == {Action.DELETE, Action.UPDATE}
    assert json.dumps([change.as_map() for change in outcome.changes])


def test_peers_are_used_if_the_member_of_this_machine_does_not_answer(box):
    box.make_control_plane().write(
        "kubernetes/manifests/etcd.yaml", etcd_manifest(box.layout.etcd_data, cluster=f"b={OTHER},c=https://[fd00::3]:2380,a={OWN}")
    )
    box.reset()
    assert box.etcd_asked == [("https://127.0.0.1:2379", "https://10.0.0.2:2379", "https://[fd00::3]:2379")]
