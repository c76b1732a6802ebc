"""Plans: what they list, that they write nothing, and that a correct machine has an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from init_kit import TOKEN, Box, asked, names

import parts
from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.base import yaml
from kubewright.base.change import Action, Change, Lifetime
from kubewright.base.errors import UsageError
from kubewright.kube.resources import CONFIG_MAP, named
from kubewright.lifecycle.init.phases import PHASES as INIT
from kubewright.manifests.rbac import APPROVAL_BINDINGS
from kubewright.workflow.runner import Plan


def test_a_plan_lists_what_a_run_creates(box):
    plan = box.plan(asked())
    assert box.snapshot() == {}
    assert names(plan.changes) == names(box.run(asked()))
    assert len(plan.changes) == 58


def test_the_approver_of_serving_certificates_is_planned_and_stays_as_it_is(box):
    wish = asked(serving_certificates="strict", controllers_image="registry.example/kubewright:1")
    without = names(box.plan(asked()).changes)
    more = [name for name in names(box.plan(wish).changes) if name not in without]
    own = [f"{kind}{place}kubewright:serving-approver" for place in ("", "default/", "kube-system/") for kind in _RIGHTS[bool(place)]]
    own += [f"{kind}kubewright:node-client-by-policy" for kind in _RIGHTS[False]]
    stored = [f"configmap kube-system/kubewright-{name}" for name in ("used-tokens", "node-policy")]
    assert more == [*own, *stored, "kubeconfig kubewright-controllers.conf", f"file {_pod(box)}"]
    box.run(wish)
    assert "--node-policy=configmap:kube-system/kubewright-node-policy" in _pod(box).read_text()
    assert "cluster-signing" not in _pod(box).read_text()
    assert not box.plan(wish, observe=lambda _: box.kube)


def test_strict_client_certificates_take_the_permissions_of_the_stock_approver_away(box):
    box.run(asked())
    stock = [f"clusterrolebinding {name}" for name in APPROVAL_BINDINGS]
    wish = asked(serving_certificates="strict", client_certificates="strict", node_cidrs=("10.98.0.0/24",))
    changes = box.plan(wish, observe=lambda _: box.kube).changes
    assert [change.target for change in changes if change.action is Action.DELETE] == stock
    box.run(wish)
    policy = box.kube.get(CONFIG_MAP, "kubewright-node-policy", "kube-system")["data"]["policy.yaml"]
    found = yaml.load(policy)
    assert [row["node"] for row in found["sources"][0]["file"]["nodes"]] == ["node1", "*"]
    assert found["clients"] == "strict"
    assert "token create --node NAME --address ADDRESS" in box.lines()[-1]
    assert not box.plan(wish, observe=lambda _: box.kube)


def test_permissions_of_the_stock_approver_follow_the_policy_of_the_cluster(box):
    box.run(asked(serving_certificates="strict"))
    found = box.kube.get(CONFIG_MAP, "kubewright-node-policy", "kube-system")
    policy = {**yaml.load(found["data"]["policy.yaml"]), "clients": "strict"}
    box.kube.update({**found, "data": {"policy.yaml": yaml.dump(policy)}})
    for wish in (asked(serving_certificates="strict"), asked(only=("bootstrap-token",))):
        box.run(wish)
        kept = {body["metadata"]["name"] for body in box.kube.list(named("ClusterRoleBinding"))}
        assert "kubeadm:kubelet-bootstrap" in kept
        assert kept.isdisjoint(APPROVAL_BINDINGS)


_RIGHTS = {False: ("clusterrole ", "clusterrolebinding "), True: ("role ", "rolebinding ")}


def _pod(box):
    return Path(box.layout.manifest("kubewright-controllers"))


def test_a_plan_writes_nothing_and_starts_nothing(box, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    box.run(asked(only=("certs",)))
    before = box.snapshot()
    assert box.plan(asked(upload_certs=True)).changes
    assert box.snapshot() == before
    assert box.services.done == []
    assert list(home.iterdir()) == []


def test_a_correct_machine_has_an_empty_plan(box):
    box.run(asked())
    plan = box.plan(asked(), observe=lambda _: box.kube)
    assert (bool(plan), plan.text(), plan.as_list()) == (False, "", [])


def test_a_token_of_another_run_is_no_difference(box):
    """Without a configured token every run creates a new one, which is short-lived."""
    box.run(asked(init="bootstrapTokens: []\n", upload_certs=True))
    assert not box.plan(asked(init="bootstrapTokens: []\n"), observe=lambda _: box.kube)
    assert not box.plan(asked(upload_certs=True), observe=lambda _: box.kube)


def test_only_edited_files_are_shown_as_diffs(box):
    box.run(asked())
    manifest = Path(box.layout.manifest("kube-scheduler"))
    manifest.write_text(manifest.read_text().replace("--leader-elect=true", "--leader-elect=false"))
    plan = box.plan(asked(), observe=lambda _: box.kube)
    assert names(plan.changes) == [f"file {manifest}"]
    assert "-    - --leader-elect=false\n" in plan.changes[0].diff
    assert "+    - --leader-elect=true\n" in plan.changes[0].diff
    assert plan.changes[0].action is Action.UPDATE


def test_missing_files_and_their_dependents_are_planned(box):
    box.run(asked())
    Path(box.layout.certificate("apiserver")).unlink()
    box.kube.delete(named("DaemonSet"), "kube-proxy", "kube-system")
    plan = box.plan(asked(), observe=lambda _: box.kube)
    assert names(plan.changes) == ["certificate apiserver", "daemonset kube-system/kube-proxy"]


def test_a_changed_configuration_is_shown(box):
    box.run(asked())
    plan = box.plan(asked(cluster="networking: {podSubnet: 10.244.0.0/16}\n"), observe=lambda _: box.kube)
    assert names(plan.changes) == [
        f"file {box.layout.manifest('kube-controller-manager')}",
        "configmap kube-system/kubeadm-config",
        "configmap kube-system/kube-proxy",
    ]


def test_after_the_file_phases_have_run_only_the_rest_is_planned(box):
    phases = ("certs", "kubeconfig", "etcd", "control-plane")
    for phase in phases:
        box.act(asked(only=(phase,)))
        assert not box.plan(asked(only=(phase,)))
    rest = names(box.plan(asked()).changes)
    assert rest[0] == f"directory {box.layout.kubelet}"
    assert [target for target in rest if target.startswith(("certificate", "key pair", "kubeconfig"))] == []


def test_no_secret_is_in_a_plan(box):
    canary = "c" * 6 + "." + "0123456789secret"
    request = asked(init=f"certificateKey: {'ab' * 32}\nbootstrapTokens: [{{token: {canary}}}]\n", upload_certs=True)
    for _ in range(2):
        plan = box.plan(request, observe=lambda _: box.kube)
        told = plan.text() + str(plan.as_list())
        assert "PRIVATE KEY" not in told
        assert "0123456789secret" not in told
        assert "ab" * 32 not in told
        box.run(request)
        Path(box.layout.manifest("etcd")).unlink()
    assert plan.changes


def test_a_plan_as_data_has_one_entry_for_each_change(box):
    entries = box.plan(asked(only=("control-plane",))).as_list()
    assert [entry["action"] for entry in entries] == ["create"] * 4
    assert {frozenset(entry) for entry in entries} == {frozenset({"target", "action", "diff", "reason", "lifetime"})}


@pytest.mark.parametrize(("durable", "kept"), [(0, 0), (1, 3)])
def test_short_lived_changes_count_only_together_with_durable_ones(durable, kept):
    short = [Change(target=f"secret {n}", action=Action.CREATE, lifetime=Lifetime.EPHEMERAL) for n in range(2)]
    lasting = [Change(target="role", action=Action.CREATE)] * durable
    assert len(Plan.of([*short, *lasting]).settled().changes) == kept


SKIPPABLE = [node.name for node in INIT.nodes]
NEEDED = {"bootstrap-token", "upload-certs"}
AUTHORITIES = {"certs", "certs/ca", "certs/front-proxy-ca", "certs/etcd-ca"}


@settings(max_examples=parts.given(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from([name for name in SKIPPABLE if name not in AUTHORITIES]), max_size=6))
def test_any_phases_can_be_skipped_and_leave_nothing(tmp_path, skipped):
    box = Box(tmp_path / "machine")
    request = asked(overrides=InitOverrides(skip_phases=sorted(skipped)))
    if skipped & NEEDED and "show-join-command" not in skipped:
        with pytest.raises(UsageError, match="unresolved dependencies"):
            box.plan(request)
        return
    targets = names(box.plan(request).changes)
    marks = {"kubelet-start": "config.yaml", "etcd": "etcd.yaml", "addon/coredns": "coredns", "mark-control-plane": "node node1"}
    for phase, mark in marks.items():
        left_out = phase in skipped or phase.partition("/")[0] in skipped or (phase == "etcd" and "etcd/local" in skipped)
        assert any(mark in target for target in targets) is not left_out, phase
    assert box.snapshot() == {}


def test_an_unknown_phase_is_refused_before_anything_runs(box):
    with pytest.raises(UsageError, match="invalid phase name: Addon/CoreDNS"):
        box.plan(asked(overrides=InitOverrides(skip_phases=("Addon/CoreDNS",))))
    assert box.lines() == []


def test_the_token_of_a_plan_is_that_of_the_file(box):
    assert f"secret kube-system/bootstrap-token-{TOKEN[:6]}" in names(box.plan(asked()).changes)
