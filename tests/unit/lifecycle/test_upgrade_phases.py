"""The phases of `upgrade apply` and `upgrade node`: the order of replaced files, renewed certificates, and reverting a failure."""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from init_kit import asked, names
from upgrade_kit import NEW, OLD, PODS, ControlPlane, Killed, kill, store, stored, with_another_control_plane

from kubewright.base.clock import rfc3339_micro
from kubewright.base.errors import ConfigurationChanged, Forbidden, HostError, Unreachable, UsageError, WaitTimeout
from kubewright.base.events import Checked, PhaseSkipped
from kubewright.base.records import replace
from kubewright.etcd.api import Alarm
from kubewright.host.states import ContainerState
from kubewright.kube.resources import CONFIG_MAP, DEPLOYMENT, LEASE, NODE, POD, named
from kubewright.lifecycle import kept_patches, machine_record
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.init import downgrades
from kubewright.lifecycle.steps import checkpoint, operation_lease
from kubewright.lifecycle.steps.checkpoint import State
from kubewright.lifecycle.upgrade.context import report
from kubewright.lifecycle.upgrade.control_plane import proofs
from kubewright.manifests.static_pods import CLIENT_URLS
from kubewright.pki import table
from snapshot_files import database, snapshot

ETCD = "3.6.8-0"
LEAVES = ("etcd-server", "etcd-peer", "etcd-healthcheck-client")
OF_API_SERVER = ("apiserver", "apiserver-kubelet-client", "front-proxy-client", "apiserver-etcd-client")


@pytest.fixture
def box(tmp_path):
    return ControlPlane(tmp_path)


def test_manifests_that_differ_are_replaced_in_order_and_their_certificates_renewed(box):
    result = box.upgrade()
    assert box.tags() == [ETCD, NEW, NEW, NEW]
    manifests = [f"file {box.layout.manifest(name)}" for name in PODS[1:]]
    assert names(result.changes)[:12] == [
        *(f"certificate {name}" for name in (*LEAVES, *OF_API_SERVER)),
        manifests[0],
        "certificate controller-manager.conf",
        "certificate scheduler.conf",
        *manifests[1:],
    ]
    assert stored(box)["kubernetesVersion"] == NEW
    lines = box.lines("upgrade/staticpods")
    assert lines[0] == "Current and new manifests of etcd are equal, skipping upgrade"
    assert [line for line in lines if "upgraded successfully" in line] == [
        f'Component "{name}" upgraded successfully!' for name in PODS[1:]
    ]
    assert f'SUCCESS! A control plane node of your cluster was upgraded to "{NEW}".\n' in box.lines("upgrade")


def test_the_result_lists_the_changes_and_what_was_verified(box):
    result = box.upgrade()
    found = report(result)
    assert [one["target"] for one in found["changes"]] == names(result.changes)
    rows = [tuple(row.values()) for row in found["proofs"]]
    verified = [
        row
        for name in PODS[1:]
        for row in ((f"health of {name}", "node1", "healthy", "healthy"), (f"version of {name}", "node1", NEW[1:], NEW[1:]))
    ]
    assert rows[:6] == verified
    assert [row[:3] for row in rows[6:]] == [(f"{name} stays up", "node1", "the same container for 10 s") for name in PODS[1:]]
    assert all(float(row[3].split()[-2]) >= 10 for row in rows[6:])
    assert report(box.upgrade()) == {"changes": [], "proofs": []}
    back = report(box.rollback())["proofs"]
    assert [tuple(row.values()) for row in back] == [tuple(value.replace(NEW[1:], OLD[1:]) for value in row) for row in verified]


def test_a_second_run_changes_nothing(box):
    box.upgrade()
    before, starts = box.snapshot(), list(box.runtime.starts)
    assert names(box.upgrade().changes) == []
    assert (box.snapshot(), box.runtime.starts) == (before, starts)


@pytest.mark.parametrize("broken", PODS[1:])
def test_all_files_are_restored_if_a_component_does_not_run(box, broken):
    box.runtime.broken = {broken}
    before = box.manifests()
    with pytest.raises(HostError, match=f"{broken}.* failed; this machine is back in its earlier state") as caught:
        box.upgrade()
    assert f"the last words of {broken}" in str(caught.value)
    assert box.manifests() == before
    assert stored(box)["kubernetesVersion"] == OLD
    assert [one.state for one in checkpoint.every(box.machine(box.layout))] == [State.ROLLED_BACK]
    box.runtime.broken = set()
    box.upgrade()
    assert box.tags() == [ETCD, NEW, NEW, NEW]


def test_a_kubelet_that_starts_the_failing_pod_again_does_not_stop_the_restoration(box, monkeypatch):
    """On a busy machine, it notices late that the manifest was restored."""
    name, looked, failed, late = PODS[3], box.runtime.containers, [], iter(range(40))

    def containers(*, namespace):
        found = looked(namespace=namespace)
        failing = [one for one in found if one.state is ContainerState.EXITED]
        if failing:
            failed[:] = failing
        elif failed and (number := next(late, None)) is not None:
            again = replace(failed[0], attempt=failed[0].attempt + number, created=box.clock.now().timestamp())
            return [again if one.name == name else one for one in found]
        return found

    monkeypatch.setattr(box.runtime, "containers", containers)
    box.runtime.broken = {name}
    before = box.manifests()
    with pytest.raises(HostError, match=f"{name}.* failed; this machine is back in its earlier state"):
        box.upgrade()
    assert (box.manifests(), next(late, None)) == (before, None)


@pytest.mark.parametrize("name", PODS[2:])
def test_all_files_are_restored_if_a_component_has_ended_since_its_proof(box, name):
    box.runtime.ends = {name: lambda: f'Component "{PODS[3]}" upgraded successfully!' in box.lines("upgrade/staticpods")}
    before = box.manifests()
    with pytest.raises(HostError, match="upgrade failed; this machine is back in its earlier state") as caught:
        box.upgrade()
    assert f"{name} has ended since its upgrade" in str(caught.value)
    assert f"the last words of {name}, which has ended" in str(caught.value)
    assert box.manifests() == before
    assert [one.state for one in checkpoint.every(box.machine(box.layout))] == [State.ROLLED_BACK]


def lease(box, holder, *, renewed):
    """Create the Lease of the controller-manager, last renewed so many seconds after its new container was created."""
    path = Path(box.layout.manifest(PODS[2]))
    moment = rfc3339_micro(datetime.fromtimestamp(path.stat().st_mtime + renewed, UTC))
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": moment, "renewTime": moment, "leaseTransitions": 4}
    box.kube.create(
        {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": {"name": PODS[2], "namespace": "kube-system"}, "spec": spec}
    )


@pytest.mark.parametrize(
    ("holder", "renewed", "given"),
    [("node1_former", -5, True), ("node1_living", 3600, False), ("node2_former", -5, False), ("", -5, False)],
)
def test_the_lease_of_an_ended_controller_manager_is_released(box, holder, renewed, given):
    lease(box, holder, renewed=renewed)
    box.upgrade()
    spec = box.kube.get(LEASE, PODS[2], "kube-system")["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (*(("", 1) if given else (holder, 15)), 4)


def test_a_pod_that_waits_for_the_former_one_is_started_by_a_change_of_its_mirror_pod(box):
    """The kubelet looks again after 10 to 15 seconds, or when the mirror pod changes."""
    pod = f"{PODS[3]}-node1"
    box.runtime.held = {PODS[3]: lambda: "kubewright.upgrade/nudged" in box.kube.get(POD, pod, "kube-system")["metadata"]["annotations"]}
    box.upgrade(only=("control-plane",))
    assert box.tags() == [ETCD, NEW, NEW, NEW]
    assert box.clock.monotonic() < 5
    others = [box.kube.get(POD, f"{name}-node1", "kube-system")["metadata"]["annotations"] for name in PODS[:3]]
    assert not any("kubewright.upgrade/nudged" in one for one in others)


@pytest.mark.parametrize("ending", [True, False])
def test_an_api_server_that_does_not_end_is_stopped_once_it_has_closed_its_port(box, ending):
    """Open watches keep it until the kubelet kills it after 30 seconds."""
    api_server, server = PODS[1], "https://10.98.0.11:6443"

    def gone():
        if ending and box.clock.monotonic() >= 3:
            box.unready = (server,)  # it has closed its port
        if box.runtime.stopped or box.clock.monotonic() > 30:
            box.unready = ()
            return True
        return False

    box.runtime.held = {api_server: gone}
    box.upgrade(only=("control-plane",))
    assert box.tags() == [ETCD, NEW, NEW, NEW]
    assert (box.runtime.stopped, box.clock.monotonic() < 20) == ([f"of {api_server}"] if ending else [], ending)


def test_a_plan_shows_everything_and_does_nothing(box):
    before = box.snapshot()
    planned = box.upgrade(mode=Mode.PLAN).plan
    assert box.snapshot() == before
    shown = "".join(change.diff for change in planned.changes)
    assert ("kube-apiserver:" + NEW in shown, "PRIVATE KEY" in shown, "client-key-data: LS0" in shown) == (True, False, False)
    assert stored(box)["kubernetesVersion"] == OLD
    done = box.upgrade().changes
    assert [change.target for change in planned.changes] == names(done)


def test_certificates_stay_where_that_is_asked_for(box):
    before = box.snapshot()
    box.upgrade(certificate_renewal=False)
    after = box.snapshot()
    assert {name for name in before if "pki" in name or name.endswith(".conf") if before[name] != after[name]} == set()


def test_the_kubeconfig_of_our_controllers_is_renewed_and_their_static_pod_restarted(box):
    path = Path(box.layout.kubeconfig(table.CONTROLLERS.name))
    path.write_bytes(Path(box.layout.kubeconfig("scheduler")).read_bytes())
    before = path.read_bytes()
    changes = names(box.upgrade().changes)
    assert changes.count(f"certificate {path.name}") == 1
    assert path.read_bytes() != before
    assert box.runtime.stopped == [f"of {table.CONTROLLERS.name}"]
    after = path.read_bytes()
    assert names(box.upgrade().changes) == []
    assert (path.read_bytes(), len(box.runtime.stopped)) == (after, 1)


def test_a_machine_without_our_controllers_gets_no_kubeconfig_of_them(box):
    box.upgrade()
    assert (Path(box.layout.kubeconfig(table.CONTROLLERS.name)).exists(), box.runtime.stopped) == (False, [])


def test_an_etcd_that_changes_joins_the_existing_cluster(box):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    assert names(box.upgrade(etcd_upgrade=False).changes)[0] == "certificate apiserver"
    assert box.tag("etcd") == "3.6.6-0"
    changes = names(box.upgrade().changes)
    assert changes == [
        *(f"certificate {name}" for name in LEAVES),
        f"file {path}",
        "certificate admin.conf",
        "certificate super-admin.conf",
    ]
    assert box.tag("etcd") == ETCD
    assert "    - --initial-cluster-state=existing\n" in path.read_text()


def test_an_etcd_that_is_newer_is_left_alone(box):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.10-0"))
    box.upgrade()
    assert box.tag("etcd") == "3.6.10-0"
    assert box.lines("upgrade/etcd")[:1] == ["The desired etcd version 3.6.8 is older than the present one 3.6.10: etcd is kept"]


def test_the_old_manifests_are_kept_where_kubeadm_keeps_them(box):
    before = box.manifests()
    box.upgrade()
    (directory,) = Path(box.layout.kubernetes, "tmp").glob("kubeadm-backup-manifests-*")
    assert {path.stem: path.read_text() for path in directory.iterdir()} == {name: before[name] for name in PODS[1:]}


def killed(box, monkeypatch):
    """Upgrade, and be killed when the API server has its new manifest."""
    with monkeypatch.context() as patched:
        patched.setattr(proofs, "wait", kill)
        patched.setattr(checkpoint, "put_old", kill)
        with pytest.raises(Killed):
            box.upgrade()


def test_an_interrupted_upgrade_continues_with_the_same_command(box, monkeypatch):
    killed(box, monkeypatch)
    host = box.machine(box.layout)
    assert (box.tags(), [one.state for one in checkpoint.every(host)]) == ([ETCD, NEW, OLD, OLD], [State.IN_PROGRESS])
    with pytest.raises(HostError, match=f"an operation on this machine was interrupted: upgrade to {NEW}"):
        box.upgrade(version="v1.36.1")
    box.upgrade()
    assert (box.tags(), [one.state for one in checkpoint.every(host)]) == ([ETCD, NEW, NEW, NEW], [State.DONE])


def test_a_unit_completes_files_of_a_killed_upgrade_before_the_kubelet_starts(box, monkeypatch):
    unit = Path(box.layout.units, "kubewright-recover.service")
    key, certificate = Path(box.layout.key("apiserver")), Path(box.layout.certificate("apiserver"))
    before = (key.read_bytes(), certificate.read_bytes())
    killed(box, monkeypatch)
    lines = unit.read_text().splitlines()
    assert ("Before=kubelet.service" in lines, [line for line in lines if line.startswith("ExecStart=")]) == (
        True,
        [f"ExecStart={sys.executable} -m kubewright recover"],
    )
    after = (key.read_bytes(), certificate.read_bytes())
    certificate.write_bytes(before[1])  # as if the power had failed between the two
    assert box.recover() == [f"file {certificate}"]
    assert ((key.read_bytes(), certificate.read_bytes()), unit.exists()) == (after, True)
    box.upgrade()
    assert (after[0] == key.read_bytes(), unit.exists()) == (True, False)


def test_a_unit_that_has_nothing_to_complete_removes_itself(box, monkeypatch):
    unit = Path(box.layout.units, "kubewright-recover.service")
    killed(box, monkeypatch)
    kept = unit.read_bytes()
    box.rollback()
    assert not unit.exists()
    unit.write_bytes(kept)
    assert box.recover() == ["units of kubewright-recover"]
    assert not unit.exists()


def test_the_record_of_the_machine_follows_and_init_does_not_go_back(box):
    wanted = box.call(asked())
    machine_record.save(wanted.host, machine_record.replace(wanted.record(), finished=True))
    box.upgrade()
    found = json.loads(Path(box.layout.machine_record).read_text())["configuration"]
    assert (f"kubernetesVersion: {NEW}" in found, OLD in found) == (True, False)
    with pytest.raises(ConfigurationChanged, match=f"the API server of this machine has {NEW}"):
        box.call(asked())


def test_a_cluster_that_was_upgraded_elsewhere_is_not_taken_back_either(box):
    config = box.kube.get(CONFIG_MAP, "kubeadm-config", "kube-system")
    text = config["data"]["ClusterConfiguration"].replace(OLD, NEW)
    box.kube.update({**config, "data": {"ClusterConfiguration": text}})
    with pytest.raises(ConfigurationChanged, match=f"the cluster has been upgraded to {NEW}"):
        downgrades.require_no_older_cluster(box.kube, box.call(asked()).configuration)


def test_a_further_control_plane_goes_to_the_version_that_the_cluster_keeps(box):
    config = box.kube.get(CONFIG_MAP, "kubeadm-config", "kube-system")
    box.kube.update({**config, "data": {"ClusterConfiguration": config["data"]["ClusterConfiguration"].replace(OLD, NEW)}})
    changes = names(box.upgrade(section="node").changes)
    assert box.tags() == [ETCD, NEW, NEW, NEW]
    assert [name for name in changes if name.startswith("configmap")] == []
    assert names(box.upgrade(section="node").changes) == []


def test_an_api_server_that_has_just_been_started_is_asked_again(box):
    box.refused = 3
    box.upgrade(section="node")
    assert box.refused == 0
    box.refused = -1
    with pytest.raises(Forbidden, match="no relationship found"):
        box.upgrade(section="node")
    assert box.refused < -2  # it was asked again once


PROXY = "daemonset kube-system/kube-proxy"


def test_add_ons_wait_for_the_last_control_plane(box):
    with_another_control_plane(box, status="True")
    assert PROXY not in names(box.upgrade(options={"skip_dead": ("node2",)}).changes)
    box.kube.delete(POD, "kube-apiserver-node2", "kube-system")
    assert PROXY in names(box.upgrade().changes)


def test_add_ons_do_not_wait_for_a_dead_control_plane_that_is_named(box):
    with_another_control_plane(box, status="Unknown")
    assert PROXY not in names(box.upgrade().changes)
    [reason] = [event.reason for event in box.reporter.events if isinstance(event, PhaseSkipped) and event.phase == "addon"]
    assert reason.endswith("(node2 does not respond: --skip-dead node2 upgrades them without it)")
    assert PROXY in names(box.upgrade(options={"skip_dead": ("node2",)}).changes)


def test_add_ons_do_not_wait_for_a_control_plane_without_a_node(box):
    with_another_control_plane(box, status="Unknown")
    box.kube.delete(NODE, "node2")
    assert PROXY in names(box.upgrade().changes)


def test_a_version_that_the_cluster_cannot_go_to_is_refused(box):
    with pytest.raises(UsageError, match=r"this cluster cannot be upgraded to v1\.37\.0"):
        box.upgrade(version="v1.37.0", force_upgrade=True)


def test_the_phase_preflight_alone_compares_the_version_with_that_of_this_program(box):
    """kubeadm has --force for that phase, and not for the others."""
    with pytest.raises(UsageError, match=r"v1\.36\.9 is newer than this program"):
        box.upgrade(version="v1.36.9", only=("preflight",))
    box.upgrade(version="v1.36.9", only=("upload-config/kubeadm",))
    assert stored(box)["kubernetesVersion"] == "v1.36.9"


def test_an_etcd_that_does_not_run_is_restored_with_its_data(box):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    box.runtime.broken, box.runtime.at = {"etcd"}, ETCD
    before = box.manifests()
    with pytest.raises(HostError, match="etcd failed; this machine is back in its earlier state"):
        box.upgrade()
    assert box.manifests() == before
    assert len(box.runtime.starts) == len(PODS) + 2


def test_an_etcd_that_runs_but_follows_no_leader_is_restored(box):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    box.cut_off_at = ETCD
    before = box.manifests()
    with pytest.raises(HostError, match="etcd failed; this machine is back in its earlier state") as caught:
        box.upgrade()
    assert "no leader" in str(caught.value)
    assert box.manifests() == before
    assert len(box.runtime.starts) == len(PODS) + 2


def test_an_upgrade_can_ignore_that_images_cannot_be_pulled(box):
    def pull(image):
        raise HostError(f"the image {image} cannot be pulled")

    box.runtime.has_image = lambda image: False
    box.runtime.pull = pull
    box.upgrade()
    assert box.tags() == [ETCD, NEW, NEW, NEW]
    warned = [event.text for event in box.reporter.events if isinstance(event, Checked) and event.check == "ImagePull"]
    assert [text.partition(":")[0] for text in warned] == ["7 of 7 images cannot be pulled"]


def test_a_downgrade_is_announced_before_the_confirmation(box):
    box.upgrade()
    asked_for = []

    def answer(question: str) -> str:
        asked_for.append((question, box.lines("upgrade/preflight")[-1]))
        return "n\n"

    for name in PODS[1:]:
        box.kube.delete(POD, f"{name}-node1", "kube-system")
        box.kube.create(box.mirror(name))
    with pytest.raises(UsageError, match="nothing was upgraded"):
        box.upgrade(version=OLD, ask=answer)
    assert asked_for == [
        ("[upgrade] Are you sure you want to proceed? [y/N]: ", f"This is a downgrade: the cluster has {NEW}, which is newer than {OLD}")
    ]
    assert box.tags() == [ETCD, NEW, NEW, NEW]


def test_the_kubelet_of_a_control_plane_asks_its_own_machine(box):
    path = Path(box.layout.kubeconfig("kubelet"))
    path.write_text(path.read_text().replace("https://10.98.0.11:6443", "https://cluster.test:6443"))
    config = box.kube.get(CONFIG_MAP, "kubeadm-config", "kube-system")
    text = "controlPlaneEndpoint: cluster.test:6443\n" + config["data"]["ClusterConfiguration"]
    box.kube.update({**config, "data": {"ClusterConfiguration": text}})
    box.upgrade()
    assert "server: https://10.98.0.11:6443\n" in path.read_text()
    assert box.services.done[-1] == ("restart", "kubelet")


def test_fields_that_users_added_next_to_the_socket_stay_in_the_kubelets_configuration(box):
    instance, config = Path(box.layout.kubelet_instance_config), Path(box.layout.kubelet_config)
    instance.write_text(instance.read_text() + "maxPods: 17\n")
    box.upgrade()
    assert "maxPods: 17\n" in config.read_text()
    assert [path.name for path in Path(box.layout.kubernetes, "tmp").glob("kubeadm-kubelet-config-*/*")] == ["config.yaml"]
    before = config.read_text()
    instance.unlink()
    Path(box.layout.kubelet_flags).write_text('KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/x.sock --v=2"\n')
    box.upgrade()
    assert instance.read_text() == 'containerRuntimeEndpoint: "unix:///run/x.sock"\n'
    assert Path(box.layout.kubelet_flags).read_text() == 'KUBELET_KUBEADM_ARGS=" --v=2"\n'
    assert "maxPods" in before


def test_rollback_puts_the_earlier_static_pods_back_in_order(box):
    wanted = box.call(asked())
    machine_record.save(wanted.host, machine_record.replace(wanted.record(), finished=True))
    before = box.manifests()
    box.upgrade()
    planned = box.rollback(mode=Mode.PLAN).plan
    assert box.tags() == [ETCD, NEW, NEW, NEW]
    changes = names(box.rollback().changes)
    of_cluster = ["configmap kube-system/kubeadm-config", PROXY]
    assert changes == [*of_cluster, *(f"file {box.layout.manifest(name)}" for name in PODS[1:])] == [one.target for one in planned.changes]
    assert box.manifests() == before
    assert stored(box)["kubernetesVersion"] == OLD
    assert box.call(asked()).warnings == []  # the record has the earlier version as well
    with pytest.raises(HostError, match=f"the upgrade to {NEW} has been rolled back already"):
        box.rollback()
    box.upgrade()
    assert box.tags() == [ETCD, NEW, NEW, NEW]


def test_the_cluster_keeps_its_version_while_another_control_plane_has_it(box):
    box.upgrade()
    with_another_control_plane(box, status="True")
    pod = box.kube.get(POD, "kube-apiserver-node2", "kube-system")
    pod["spec"]["containers"][0]["image"] = f"registry.k8s.io/kube-apiserver:{NEW}"
    box.kube.update(pod)
    changes = names(box.rollback().changes)
    assert (changes, stored(box)["kubernetesVersion"]) == ([f"file {box.layout.manifest(name)}" for name in PODS[1:]], NEW)
    [reason] = [event.reason for event in box.reporter.events if isinstance(event, PhaseSkipped) and event.phase == "cluster"]
    assert reason == "kube-apiserver has a newer version on node2"


def test_static_pods_go_back_although_the_cluster_refuses_its_earlier_version(box, monkeypatch):
    before = box.manifests()
    box.upgrade()
    send = box.kube.send

    def refusing(call, /):
        if call.name == "kubeadm-config" and call.verb not in ("get", "list"):
            raise Forbidden("not today", code=403)
        return send(call)

    monkeypatch.setattr(box.kube, "send", refusing)
    box.rollback()
    assert (box.manifests(), stored(box)["kubernetesVersion"]) == (before, NEW)
    assert any("not today" in text and "use `upgrade apply` with the earlier version" in text for text in box.warnings())


@pytest.mark.parametrize("works", [True, False])
def test_rollback_stops_no_member_of_etcd_that_others_need_unless_it_does_not_work(box, works):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    before = box.manifests()
    box.others = ("b", "c")
    box.upgrade()
    box.dead, box.cut_off_at = ("c",), "" if works else ETCD
    if works:
        with pytest.raises(HostError, match=r"would lose its quorum.*c at https://10\.98\.1"):
            box.rollback()
        assert (box.tags(), stored(box)["kubernetesVersion"]) == ([ETCD, NEW, NEW, NEW], NEW)
        box.dead = ()
    box.rollback()
    assert (box.manifests(), stored(box)["kubernetesVersion"]) == (before, OLD)


def test_rollback_waits_for_its_turn(box, monkeypatch):
    box.upgrade()
    held = box.kube.get(LEASE, "kubewright-operation", "kube-system")
    box.kube.update({**held, "spec": {**held["spec"], "holderIdentity": "node2", "renewTime": rfc3339_micro(box.clock.now())}})
    seen, sleep = [], box.clock.sleep

    def others_work(seconds):
        sleep(seconds)
        found = box.kube.get(LEASE, "kubewright-operation", "kube-system")
        if found["spec"]["holderIdentity"] == "node2":
            seen.append(box.tags())
            box.kube.update({**found, "spec": {**found["spec"], "holderIdentity": ""}})

    monkeypatch.setattr(box.clock, "sleep", others_work)
    box.rollback()
    assert seen == [[ETCD, NEW, NEW, NEW]]
    assert box.kube.get(LEASE, "kubewright-operation", "kube-system")["spec"]["holderIdentity"] == ""


def test_an_upgrade_that_was_killed_can_be_taken_back_without_an_api_server(box, monkeypatch):
    before = box.manifests()
    killed(box, monkeypatch)
    box.runtime.broken = {"kube-apiserver"}
    box.rollback()
    assert box.manifests() == before


def test_rollback_asks_and_refuses_files_that_someone_has_changed(box):
    with pytest.raises(HostError, match="no upgrade has replaced anything on this machine"):
        box.rollback()
    box.upgrade()
    with pytest.raises(UsageError, match="nothing was rolled back"):
        box.rollback(ask=lambda _: "\n")
    path = Path(box.layout.manifest("kube-scheduler"))
    path.write_text(path.read_text() + "# by hand\n")
    with pytest.raises(HostError, match=r"files have been changed.*kube-scheduler\.yaml"):
        box.rollback()


@pytest.mark.parametrize(
    ("others", "dead", "refused"), [(("b",), (), False), (("b",), ("b",), True), (("b", "c"), (), False), (("b", "c"), ("c",), True)]
)
def test_etcd_is_not_stopped_if_the_others_could_not_work_without_it(box, others, dead, refused):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    box.others, box.dead = others, dead
    if refused:
        before = box.manifests()
        with pytest.raises(HostError, match=f"would lose its quorum.*{dead[0]} at https://10.98.1"):
            box.upgrade()
        assert box.manifests() == before
        box.upgrade(etcd_upgrade=False)
    else:
        box.upgrade()
        assert box.tags() == [ETCD, NEW, NEW, NEW]


def test_a_machine_between_two_versions_is_neither_made_again_nor_reset(box, monkeypatch):
    killed(box, monkeypatch)
    with pytest.raises(HostError, match=f"interrupted: upgrade to {NEW}") as caught:
        box.really(asked(only=("control-plane",)), mode=Mode.APPLY)
    assert "`kubewright upgrade rollback`" in caught.value.remedy


def test_status_shows_reports_of_the_processes_and_the_next_steps(box):
    other = box.mirror("kube-scheduler")
    box.kube.create(
        {**other, "metadata": {**other["metadata"], "name": "kube-scheduler-node2"}, "spec": {**other["spec"], "nodeName": "node2"}}
    )
    assert box.status().next() == []
    box.upgrade()
    found = box.status()
    assert (found.stored, found.open) == (NEW, "")
    rows = [(one.node, one.component, one.version, one.source) for one in found.versions]
    assert rows == [
        ("node1", "etcd", "3.6.8", "process"),
        *(("node1", name, NEW, "process") for name in PODS[1:]),
        ("node1", "kubelet", OLD, "node"),
        ("node2", "kube-scheduler", OLD, "image"),
    ]
    assert found.next() == [f"run `kubewright upgrade node` on node2, to {NEW}"]
    box.kube.delete(POD, "kube-scheduler-node2", "kube-system")
    assert box.status().next() == [f"upgrade the kubelets of node1 to {NEW}"]
    assert json.loads(json.dumps(found.as_map()))["versions"][0] == {
        "node": "node1",
        "component": "etcd",
        "version": "3.6.8",
        "source": "process",
        "problem": "",
    }


def test_status_asks_the_members_of_etcd_on_other_machines(box):
    box.others, box.dead = ("node2", "node3"), ("node3",)
    for number, node in enumerate(box.others):
        pod = box.mirror("etcd")
        notes = {CLIENT_URLS: f"https://10.98.1.{number}:2379"}
        box.kube.create(
            {
                **pod,
                "metadata": {**pod["metadata"], "name": f"etcd-{node}", "annotations": notes},
                "spec": {**pod["spec"], "nodeName": node},
            }
        )
    found = box.status()
    assert [(one.node, one.version, one.source, one.problem) for one in found.versions if one.component == "etcd"] == [
        ("node1", "3.6.8", "process", ""),
        ("node2", "3.6.8", "process", ""),
        ("node3", "", "process", "connection refused"),
    ]
    assert found.next() == ["find out why these do not answer: etcd of node3"]


def test_status_names_components_that_do_not_answer(box):
    box.dead, box.runtime.broken, box.runtime.at = ("node1",), {"kube-scheduler"}, OLD
    found = box.status()
    unknown = {one.component: one.problem for one in found.versions if one.problem}
    assert unknown == {"etcd": "connection refused", "kube-scheduler": "kube-scheduler does not answer"}
    assert found.next() == ["find out why these do not answer: etcd of node1, kube-scheduler of node1"]


def test_status_shows_this_machine_where_the_cluster_does_not_answer(box, monkeypatch):
    killed(box, monkeypatch)
    box.runtime.broken = {"kube-apiserver"}

    def down(call, /):
        raise Unreachable("nobody answers")

    monkeypatch.setattr(box.kube, "send", down)
    found = box.status()
    assert [(one.component, one.version, one.problem) for one in found.versions[:2]] == [
        ("etcd", "3.6.8", ""),
        ("kube-apiserver", "", "kube-apiserver does not answer"),
    ]
    assert len(box.warnings()) > 0
    assert found.next() == [f"this machine is between two versions: run the same upgrade to {NEW} again, or `kubewright upgrade rollback`"]


def test_a_status_without_any_version_is_an_error(box):
    box.become_worker(server=NEW)
    with pytest.raises(HostError, match="the versions of the cluster cannot be read from this machine") as caught:
        box.status()
    assert (str(caught.value.__cause__), box.warnings()) == (caught.value.detail, [])
    assert caught.value.remedy == "run this on a control plane, or pass an administrator's kubeconfig with --kubeconfig"


def patches(tmp_path, name, value):
    directory = tmp_path / name
    directory.mkdir(mode=0o700)
    (directory / "kube-scheduler+json.json").write_text(json.dumps([{"op": "add", "path": "/spec/containers/0/command/-", "value": value}]))
    return str(directory)


def test_patches_are_remembered_until_others_are_given_or_they_are_forgotten(box, tmp_path):
    said = "Using the patches of the last run; `--patches DIR` uses others, and `--patches none` deletes them"
    box.upgrade(patches=patches(tmp_path, "first", "--v=3"))
    assert said not in box.lines("patches")
    assert "    - --v=3\n" in box.text("kube-scheduler")
    assert (Path(box.layout.patches).stat().st_mode & 0o777, names(box.upgrade().changes)) == (0o700, [])
    assert said in box.lines("patches")
    box.upgrade(patches=patches(tmp_path, "second", "--v=4"))
    [told] = [line for line in box.lines("patches") if line.startswith("These patches differ from those of the last run")]
    changes = [line for line in told.splitlines() if line.startswith(("-[", "+["))]
    assert [(line[0], "--v=3" in line, "--v=4" in line) for line in changes] == [("-", True, False), ("+", False, True)]
    box.upgrade()
    assert ("    - --v=3\n" in box.text("kube-scheduler"), "    - --v=4\n" in box.text("kube-scheduler")) == (False, True)
    box.upgrade(patches=str(tmp_path / "none"))
    assert (Path(box.layout.patches).exists(), "--v=" in box.text("kube-scheduler")) == (False, False)


def test_kept_patches_that_were_changed_since_are_warned_about(box, tmp_path):
    source = patches(tmp_path, "first", "--v=3")
    box.upgrade(patches=source)
    document = json.loads(Path(box.layout.patches_list).read_text())
    kept = Path(box.layout.patches) / "kube-scheduler+json.json"
    assert document == {"source": source, "sha256": {kept.name: hashlib.sha256(kept.read_bytes()).hexdigest()}}
    box.upgrade()
    assert [text for text in box.warnings() if "since they were kept" in text] == []
    kept.write_text(kept.read_text().replace("--v=3", "--v=5"))
    (kept.parent / "etcd.yaml").write_text("")
    box.upgrade()
    [told] = [text for text in box.warnings() if "since they were kept" in text]
    assert f"these patches in {kept.parent} have changed since they were kept: etcd.yaml, {kept.name};" in told
    box.upgrade(patches=str(kept.parent))
    assert kept_patches.changed(box.machine(box.layout)) == []
    for broken in ("{", "[]", '{"sha256": 5}'):
        Path(box.layout.patches_list).write_text(broken)
        assert kept_patches.changed(box.machine(box.layout)) == ["etcd.yaml", kept.name]
    box.upgrade(patches=source)
    assert (kept_patches.changed(box.machine(box.layout)), sorted(path.name for path in kept.parent.iterdir())) == ([], [kept.name])
    box.upgrade(patches=str(tmp_path / "none"))
    assert (Path(box.layout.patches_list).exists(), kept_patches.changed(box.machine(box.layout))) == (False, [])


def test_patches_with_which_a_component_does_not_run_are_not_remembered(box, tmp_path):
    box.runtime.broken = {"kube-scheduler"}
    with pytest.raises(HostError, match="back in its earlier state"):
        box.upgrade(patches=patches(tmp_path, "first", "--no-such-flag"))
    assert not Path(box.layout.patches).exists()


def test_the_patches_of_init_are_those_of_the_first_upgrade(box, tmp_path):
    directory = patches(tmp_path, "first", "--v=3")
    box.run(asked(init=f"patches: {{directory: {directory}}}\n"))
    kept_patches.keep(box.machine(box.layout), directory)
    assert "    - --v=3\n" in box.text("kube-scheduler")
    box.upgrade()
    assert ("    - --v=3\n" in box.text("kube-scheduler"), box.tag("kube-scheduler")) == (True, NEW)


def test_a_given_kubelet_replaces_that_of_the_machine(box, tmp_path):
    box.kubelet(OLD)
    new = box.kubelet(NEW, path=tmp_path / "new-kubelet")
    changes = names(box.upgrade(options={"kubelet": new, "drain": True}).changes)
    program = Path(box.root / "bin/kubelet")
    assert changes[-5:] == ["node node1", "node node1", f"file {program}", "service kubelet", "node node1"]
    assert (program.read_text(), program.stat().st_mode & 0o777) == (Path(new).read_text(), 0o755)
    node = box.kube.get(NODE, "node1")
    assert (node["status"]["nodeInfo"]["kubeletVersion"], node["spec"].get("unschedulable"), node["metadata"].get("annotations")) == (
        NEW,
        None,
        {},
    )
    assert names(box.upgrade(options={"kubelet": new, "drain": True}).changes) == []
    assert [one.operation for one in checkpoint.every(box.machine(box.layout))] == ["upgrade"]


def test_static_pods_that_a_new_kubelet_starts_again_are_waited_for(box, tmp_path, monkeypatch):
    """A kubelet of another minor release gives them other UIDs."""
    box.kubelet(OLD)
    box.upgrade()

    ready = box.kubelet_started

    def started():
        box.runtime.kubelet, box.runtime.looks = " of another release", 5
        ready()

    monkeypatch.setattr(box, "kubelet_started", started)
    box.upgrade(options={"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet")})
    assert box.runtime.looks == 0
    assert [one.pod_uid.endswith(" of another release") for one in box.runtime.containers(namespace="kube-system")] == [True] * 4


@pytest.mark.parametrize(("present", "alone"), [("v1.35.4", True), (OLD, False)])
def test_only_a_kubelet_of_another_minor_release_needs_the_lease_because_it_restarts_static_pods(
    box, tmp_path, monkeypatch, present, alone
):
    box.upgrade()
    box.kubelet(present)
    holders, ready = [], box.kubelet_started

    def started():
        holders.append(box.kube.get(LEASE, "kubewright-operation", "kube-system")["spec"]["holderIdentity"])
        ready()

    monkeypatch.setattr(box, "kubelet_started", started)
    box.upgrade(options={"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet")})
    assert holders == ["node1" if alone else ""]


def test_a_kubelet_of_another_minor_release_is_not_replaced_while_etcd_would_lose_its_quorum(box, tmp_path):
    box.upgrade()
    box.kubelet("v1.35.4")
    box.others, box.dead = ("b", "c"), ("c",)
    options = {"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet")}
    with pytest.raises(HostError, match="it would lose its quorum: other members are dead"):
        box.upgrade(options=options)
    assert Path(box.root / "bin/kubelet").read_text().split()[-1] == "v1.35.4"
    box.dead = ()
    box.upgrade(options=options)
    assert Path(box.root / "bin/kubelet").read_text().split()[-1] == NEW


def test_a_kubelet_that_does_not_work_makes_way_for_the_earlier_one(box, tmp_path):
    box.kubelet(OLD)
    box.runtime.broken = {NEW}
    with pytest.raises(HostError, match="kubelet failed; this machine is back in its earlier state") as caught:
        box.upgrade(options={"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet")})
    assert f"the Node reports {OLD}, not {NEW}" in str(caught.value)
    assert Path(box.root / "bin/kubelet").read_text().split()[-1] == OLD
    assert box.tags() == [ETCD, NEW, NEW, NEW]
    box.rollback()
    assert box.tags() == [ETCD, OLD, OLD, OLD]


def test_a_kubelet_that_is_newer_than_an_api_server_is_refused(box, tmp_path):
    box.kubelet(OLD)
    with pytest.raises(HostError, match=r"the kubelet v1\.36\.9 is newer than the API server"):
        box.upgrade(options={"kubelet": box.kubelet("v1.36.9", path=tmp_path / "new-kubelet")})
    with pytest.raises(UsageError, match="--drain evicts the pods of this machine before"):
        box.upgrade(options={"drain": True})


def test_a_node_waits_for_control_planes_that_are_upgraded_at_the_same_time(box, tmp_path, monkeypatch):
    box.kubelet(OLD)
    box.become_worker(server=OLD)
    options, slept, sleep = {"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet")}, [], box.clock.sleep

    def meanwhile(seconds):
        slept.append(seconds)
        box.server = NEW if len(slept) == 20 else box.server
        sleep(seconds)

    monkeypatch.setattr(box.clock, "sleep", meanwhile)
    box.upgrade(section="node", options=options)
    assert f"Waiting until the API servers that are older than the kubelet {NEW} are upgraded: {OLD} of the cluster" in box.lines()
    assert (len(slept) >= 20, box.kube.get(NODE, "node1")["status"]["nodeInfo"]["kubeletVersion"]) == (True, NEW)


@pytest.mark.parametrize(("section", "waits"), [("apply", False), ("node", True)])
def test_only_further_machines_wait_for_an_older_api_server(box, tmp_path, section, waits):
    with_another_control_plane(box, status="True")
    box.kubelet(OLD)
    box.upgrade()
    before = box.clock.monotonic()
    with pytest.raises(HostError, match=f"the kubelet {NEW} is newer than the API server {OLD} of node2"):
        box.upgrade(section=section, options={"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet")})
    assert (box.clock.monotonic() - before >= 300) is waits
    assert Path(box.root / "bin/kubelet").read_text().split()[-1] == OLD


def test_a_kubelet_is_refused_where_the_agent_runs(box, tmp_path):
    box.kubelet(OLD)
    box.services.agent = True
    with pytest.raises(HostError, match="kubewright's agent runs in its place"):
        box.upgrade(options={"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet")})
    assert box.tags() == [ETCD, OLD, OLD, OLD]


def test_a_machine_that_joined_through_a_hub_is_left_to_its_hub(box):
    host = box.machine(box.layout)
    machine_record.save(host, machine_record.MachineRecord(workflow="node join", configuration="kind: JoinConfiguration\n"))
    with pytest.raises(HostError, match="has joined its cluster through a hub, which decides its version") as caught:
        box.upgrade(section="node")
    assert "`kubewright node join`" in caught.value.remedy
    assert box.tags()[1:] == [OLD] * 3


def test_the_kubelet_of_a_worker_is_compared_with_the_api_server_that_answers(box, tmp_path):
    box.kubelet(OLD)
    box.become_worker(server=OLD)
    options = {"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet"), "drain": True}
    with pytest.raises(HostError, match=f"the kubelet {NEW} is newer than the API server {OLD} of the cluster"):
        box.upgrade(section="node", options=options)
    assert "unschedulable" not in box.kube.get(NODE, "node1")["spec"]
    box.server = NEW
    changes = names(box.upgrade(section="node", options=options).changes)
    assert changes[-5:] == ["node node1", "node node1", f"file {box.root / 'bin/kubelet'}", "service kubelet", "node node1"]
    assert box.kube.get(NODE, "node1")["status"]["nodeInfo"]["kubeletVersion"] == NEW
    assert names(box.upgrade(section="node", options=options).changes) == []


def test_a_dry_run_leaves_the_machine_and_the_cluster_alone(box):
    before = box.snapshot()
    result = box.upgrade(mode=Mode.NARRATE)
    after = box.snapshot()
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= {"kubernetes", "kubernetes/tmp"}
    assert {Path(change.target).name for change in result.written} >= {"kube-apiserver.yaml", "kube-scheduler.yaml", "admin.conf"}
    assert box.lines("upgrade/successful") == ["Finished dryrunning successfully!"]
    assert stored(box)["kubernetesVersion"] == OLD


def test_an_etcd_that_is_not_restarted_keeps_its_keys(box):
    etcd, rest = (
        [Path(box.layout.pki, f"{base}.key") for base in bases]
        for bases in (("etcd/server", "etcd/peer", "etcd/healthcheck-client"), ("apiserver", "front-proxy-client"))
    )
    before = {path: (path.read_bytes(), path.with_suffix(".crt").read_bytes()) for path in (*etcd, *rest)}
    box.upgrade()
    after = {path: (path.read_bytes(), path.with_suffix(".crt").read_bytes()) for path in before}
    assert [before[path][0] == after[path][0] for path in (*etcd, *rest)] == [True] * 3 + [False] * 2
    assert [path for path in before if before[path][1] == after[path][1]] == []
    etcd[0].write_bytes(rest[0].read_bytes())  # a key of another certificate is replaced
    for name in PODS[1:]:
        Path(box.layout.manifest(name)).write_text(box.text(name).replace(NEW, OLD))
    box.upgrade()
    assert etcd[0].read_bytes() not in {rest[0].read_bytes(), after[etcd[0]][0]}


def test_a_certificate_that_the_configuration_describes_differently_is_renewed_as_it_was_and_warned_about(box):
    store(box, apiServer={"certSANs": ["new.example"]})
    box.upgrade()
    [text] = [text for text in box.warnings() if "is renewed as it was" in text]
    assert text.startswith("apiserver.crt is renewed as it was, and the configuration describes another one: it is not for new.example. ")


def test_certificates_of_the_configuration_are_renewed_without_a_warning(box):
    box.upgrade()
    assert [text for text in box.warnings() if "is renewed as it was" in text] == []


def backups(box):
    """What was saved of etcd."""
    return [path.read_bytes() for path in Path(box.layout.kubernetes, "tmp").glob("kubeadm-backup-etcd-*/*")]


def test_a_snapshot_of_etcd_is_saved_before_the_first_static_pod_is_replaced(box):
    box.runtime.broken = {"kube-apiserver"}
    with pytest.raises(HostError, match="back in its earlier state"):
        box.upgrade()
    assert backups(box) == [box.snapshot_of_etcd]
    box.runtime.broken = set()
    box.clock.advance(60)
    box.upgrade(etcd_upgrade=False)
    box.upgrade()
    assert len(backups(box)) == 1


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"etcd_size": 1 << 60}, "does not fit on its file system"),
        ({"snapshot_of_etcd": snapshot(database(1))[:-33]}, "the snapshot is incomplete"),
        ({"dead": ("node1",)}, "connection refused"),
    ],
)
def test_nothing_is_replaced_without_a_snapshot_of_etcd(box, wrong, text):
    for name, value in wrong.items():
        setattr(box, name, value)
    before = box.manifests()
    with pytest.raises(HostError, match=text):
        box.upgrade()
    assert (box.manifests(), backups(box)) == (before, [])
    assert [one.state for one in checkpoint.every(box.machine(box.layout))] == [State.PREPARED]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"others": ("b", "c"), "learners": ("c",)}, r"c at https://10\.98\.1\.1:2380 has no vote yet"),
        ({"others": ("b", "c"), "alarms": (Alarm(member_id=1, kind="NOSPACE"),)}, "node1 at .* has raised the alarm NOSPACE: until"),
        ({"alarms": (Alarm(member_id=9, kind="CORRUPT"),)}, "the former member 9 has raised the alarm CORRUPT: until"),
    ],
)
def test_etcd_is_not_stopped_before_it_is_fit_for_that(box, wrong, text):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    for name, value in wrong.items():
        setattr(box, name, value)
    before = box.manifests()
    with pytest.raises(HostError, match=text):
        box.upgrade()
    assert box.manifests() == before


@pytest.mark.parametrize(
    ("others", "wrong"), [((), {"empty_at": ETCD}), (("b", "c"), {"empty_at": ETCD}), (("b", "c"), {"differs_at": ETCD})]
)
def test_an_etcd_that_comes_back_without_its_data_or_with_other_data_goes_back(box, others, wrong):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    box.others = others
    for name, value in wrong.items():
        setattr(box, name, value)
    before = box.manifests()
    with pytest.raises(HostError, match="etcd failed; this machine is back in its earlier state") as caught:
        box.upgrade()
    text = "it is at revision 0, and was at 7 before" if "empty_at" in wrong else "its data differs from that of https://10.98.1.0:2379"
    assert text in str(caught.value)
    assert box.manifests() == before


def test_etcd_is_not_stopped_while_its_members_have_different_data(box):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    box.others, box.differs_at = ("b", "c"), "3.6.6-0"
    before = box.manifests()
    with pytest.raises(WaitTimeout, match=r"to have the same data.*its data differs from that of https://10\.98\.1\.0:2379"):
        box.upgrade()
    assert box.manifests() == before
    box.upgrade(etcd_upgrade=False)


@pytest.mark.parametrize(("leader", "moves"), [(1, True), (2, False)])
def test_another_member_leads_while_the_one_of_this_machine_is_restarted(box, leader, moves):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    box.others, box.leader = ("b", "c"), leader
    box.upgrade()
    assert (box.leader, any("leads etcd while" in line for line in box.lines("upgrade/etcd"))) == (2, moves)


def test_an_api_server_is_not_stopped_while_no_other_one_is_ready(box):
    pod = box.mirror("kube-apiserver")
    notes = {**pod["metadata"]["annotations"], "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": "10.98.1.0:6443"}
    other = {**pod["metadata"], "name": "kube-apiserver-node2", "annotations": notes}
    box.kube.create({**pod, "metadata": other, "spec": {**pod["spec"], "nodeName": "node2"}})
    box.unready = ("https://10.98.1.0:6443",)
    before = box.manifests()
    with pytest.raises(HostError, match="no other one is ready: node2: not yet: etcd"):
        box.upgrade()
    assert box.manifests() == before
    box.unready = ()
    box.upgrade()
    assert box.tags() == [ETCD, NEW, NEW, NEW]


def test_a_learner_whose_machine_never_came_does_not_keep_etcd_from_being_restarted(box):
    """Its ID is not one of those that etcd gives to learners that were just added."""
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    box.others, box.learners, box.dead = ("", "c"), ("",), ("",)
    box.upgrade()
    assert box.tag("etcd") == ETCD


def test_the_lease_of_operations_is_released(box):
    box.upgrade()
    spec = box.kube.get(LEASE, "kubewright-operation", "kube-system")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 1)  # once for the checks, and once for the static pods
    box.upgrade()  # stops nothing
    assert box.kube.get(LEASE, "kubewright-operation", "kube-system")["spec"] == spec


def test_several_requests_for_the_lease_of_operations_may_time_out_before_it_expires(box):
    box.upgrade()
    (limit,) = box.limits[operation_lease.TERMS.name]
    assert 3 * limit <= operation_lease.TERMS.seconds


def give_coredns(box, text, *, version="v1.7.1"):
    """Have the cluster run an old CoreDNS with a Corefile."""
    config, deployment = (box.kube.get(kind, "coredns", "kube-system") for kind in (CONFIG_MAP, DEPLOYMENT))
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = f"registry.k8s.io/coredns/coredns:{version}"
    box.kube.update(deployment)
    box.kube.update({**config, "data": {"Corefile": text}})


def test_an_old_default_of_coredns_is_replaced_and_another_corefile_is_migrated(box):
    present = box.kube.get(CONFIG_MAP, "coredns", "kube-system")["data"]["Corefile"]
    lines = [line for line in present.splitlines() if "disable" not in line]
    give_coredns(box, "\n".join(lines).replace("cache 30 {\n    }", "cache 30"))
    assert "configmap kube-system/coredns" in names(box.upgrade().changes)
    assert box.kube.get(CONFIG_MAP, "coredns", "kube-system")["data"] == {"Corefile": present}
    mine = present.replace("ttl 30", "resyncperiod 5m\n       ttl 10")
    give_coredns(box, mine)
    assert "configmap kube-system/coredns" in names(box.upgrade().changes)
    found = box.kube.get(CONFIG_MAP, "coredns", "kube-system")["data"]
    assert found == {"Corefile": present.replace("ttl 30", "ttl 10"), "Corefile-backup": mine}
    assert names(box.upgrade().changes) == []


@pytest.mark.parametrize(("version", "stays"), [("v1.3.1", True), ("v1.7.1", False), ("v1.7.1-mine", False)])
def test_coredns_is_not_upgraded_with_a_corefile_that_the_new_release_refuses(box, version, stays):
    text = "example.org {\n    proxy example.org 192.0.2.1\n}\n"
    give_coredns(box, text, version=version)
    box.upgrade()
    image = box.kube.get(DEPLOYMENT, "coredns", "kube-system")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image.endswith(f":{version}") is stays
    assert box.kube.get(CONFIG_MAP, "coredns", "kube-system")["data"]["Corefile"] == text
    told = [line for line in box.lines("addons") if line.startswith(f"CoreDNS {version.removeprefix('v')} is not upgraded: ")]
    assert len(told) == stays


def test_permissions_of_the_release_are_there_before_its_components(box):
    binding = ("kubeadm:apiserver-kubelet-client", "kubeadm:node-autoapprove-bootstrap")
    for name in binding:
        box.kube.delete(named("ClusterRoleBinding"), name)
    box.runtime.broken = {"kube-apiserver"}
    with pytest.raises(HostError, match="back in its earlier state"):
        box.upgrade()
    assert [box.kube.get(named("ClusterRoleBinding"), name)["metadata"]["name"] for name in binding] == [*binding]


def test_an_upgrade_of_a_machine_that_another_tool_has_reset_since_does_not_count(box, monkeypatch):
    killed(box, monkeypatch)
    for path in (box.layout.kubeconfig("kubelet"), box.layout.kubelet_config, box.layout.certificate("ca")):
        Path(path).unlink()
    host = box.machine(box.layout)
    checkpoint.require_none_in_progress(host)
    assert checkpoint.every(host) == []


def test_an_upgrade_of_another_cluster_does_not_count(box, monkeypatch):
    """Another tool has reset the machine since, and made it a control plane of another cluster."""
    killed(box, monkeypatch)
    host, authority = box.machine(box.layout), Path(box.layout.certificate("ca"))
    other = Path(box.layout.certificate("front-proxy-ca")).read_bytes()
    authority.write_bytes(authority.read_bytes() + other)  # as while a CA is replaced
    assert len(checkpoint.every(host)) == 1
    authority.write_bytes(other)
    assert checkpoint.every(host) == []
    with pytest.raises(HostError, match="no upgrade has replaced anything on this machine"):
        box.rollback()
