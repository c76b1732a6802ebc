"""The cluster that a plan reads: where its address comes from, and what happens if it cannot be read."""

from __future__ import annotations

import functools
import socket
from datetime import timedelta
from pathlib import Path

import pytest
from init_kit import Box, asked, names
from scripted_server import ScriptedServer, answer, json_answer

from kubewright.base import yaml
from kubewright.base.change import Action
from kubewright.base.clock import FakeClock
from kubewright.base.errors import CertificateError, ConfigurationChanged, KubewrightError, WaitTimeout
from kubewright.base.events import Waiting
from kubewright.base.records import replace
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.binding import bind
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.init import existing_cluster
from kubewright.lifecycle.init import operation as init


def cluster(box, request):
    """The cluster that a plan sees."""
    prepared = box.call(request)
    with bind(init.INIT, prepared, box.whole(), mode=Mode.PLAN, reporter=box.reporter) as bound:
        ctx = init.context(request, prepared.configuration, bound)
        return existing_cluster.cluster(bound, ctx.addresses, kubeconfig=request.kubeconfig)


def test_a_machine_without_a_kubeconfig_has_no_cluster(box):
    assert cluster(box, asked()) is None
    assert box.warnings() == []


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return port  # noqa: RET504 - closed by now


def test_a_stopped_cluster_gives_a_warning_and_counts_as_empty(box, closed_port):
    box.act(asked(only=("certs/ca",)))
    box.act(asked(only=("kubeconfig/admin",)))
    path = Path(box.layout.kubeconfig("admin"))
    path.write_text(path.read_text().replace("https://10.98.0.11:6443", f"https://127.0.0.1:{closed_port}"))
    request = asked(kubeconfig=str(path.with_name("admin-elsewhere.conf")))
    path.rename(request.kubeconfig)
    assert cluster(box, request) is None
    (warning,) = box.warnings()
    assert "assumes that it is empty" in warning
    assert f"127.0.0.1:{closed_port}" in warning
    assert box.really(request).plan.changes
    waited = [event for event in box.reporter.events if isinstance(event, Waiting)]
    assert 38 <= len(waited) <= 42
    assert box.clock.monotonic() == pytest.approx(40)


@pytest.mark.parametrize("content", ["", "not: a kubeconfig", "\0", "{"])
def test_a_broken_kubeconfig_is_a_warning(box, content, tmp_path):
    path = tmp_path / "broken.conf"
    path.write_text(content)
    assert cluster(box, asked(kubeconfig=str(path))) is None
    assert len(box.warnings()) == 1
    assert str(path) in box.warnings()[0]


CONFIG = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"


@pytest.fixture
def late(box):
    """A server that answers from the fourth second on, with a cluster that has another configuration."""
    stored = {"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: other\n"}
    found = {
        "/api/v1/namespaces/kube-system": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}},
        CONFIG: {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
            "data": stored,
        },
    }

    def handle(seen):
        if box.clock.monotonic() < 4:
            return answer(503)
        body = found.get(seen.target)
        if body is None and seen.target.partition("?")[0].endswith("s"):
            return json_answer({"kind": "List", "items": []})
        return json_answer(body) if body else answer(404)

    server = ScriptedServer(handler=handle)
    yield server
    server.stop()


def kubeconfig(box, server):
    """Write an anonymous kubeconfig for a server without TLS."""
    path = Path(box.layout.kubernetes) / "elsewhere.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "nobody"}}],
        "current-context": "one",
    }
    path.write_text(yaml.dump(document))
    return str(path)


def test_a_server_that_answers_after_seconds_is_waited_for(box, late):
    plan = box.really(asked(kubeconfig=kubeconfig(box, late.url))).plan
    (change,) = [change for change in plan.changes if change.target == "configmap kube-system/kubeadm-config"]
    assert change.action is Action.UPDATE
    assert box.warnings() == []
    assert 4 <= box.clock.monotonic() < 5
    told = [event for event in box.reporter.events if isinstance(event, Waiting)]
    assert {event.what for event in told} == {f"the API server {late.url} to answer"}
    assert 2 <= len(told) <= 4


def test_an_answering_server_is_used_without_waiting(box, late):
    box.clock.advance(4)
    assert box.really(asked(kubeconfig=kubeconfig(box, late.url))).plan
    assert box.clock.monotonic() == 4
    assert [seen.target for seen in late.seen].count("/api/v1/namespaces/kube-system") == 1


def test_a_plan_that_only_writes_files_waits_for_no_server(box, closed_port):
    request = asked(kubeconfig=kubeconfig(box, f"http://127.0.0.1:{closed_port}"), only=("certs/ca",))
    assert names(box.really(request).plan.changes) == ["certificate ca"]
    assert box.clock.monotonic() == 0
    assert box.warnings() == []


def made_by_another(box):
    """Leave what another tool leaves on a machine that it made part of a cluster."""
    for place in (box.layout.kubeconfig("kubelet"), box.layout.kubelet_config):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).write_text("")


def kept(box):
    return {name: one for name, one in box.snapshot().items() if not name.startswith("run")}


def test_a_machine_is_not_adopted_while_its_cluster_does_not_answer(box, closed_port):
    made_by_another(box)
    server = f"http://127.0.0.1:{closed_port}"
    request = asked(adopt=True, kubeconfig=kubeconfig(box, server))
    before = kept(box)
    with pytest.raises(WaitTimeout, match=server) as refused:
        box.act(request)
    assert "run the same command again" in refused.value.remedy
    assert kept(box) == before
    assert [event for event in box.reporter.events if isinstance(event, Waiting)]


def test_a_late_cluster_is_compared_before_its_machine_is_adopted(box, late):
    made_by_another(box)
    request = asked(adopt=True, kubeconfig=kubeconfig(box, late.url))
    before = kept(box)
    with pytest.raises(ConfigurationChanged, match="clusterName: other"):
        box.act(request)
    assert kept(box) == before


ADMIN, SUPER = ("certs/ca", "kubeconfig/admin"), ("kubeconfig/super-admin",)


def of_another_cluster(box):
    """Replace it by the kubeconfig of another CA with the same address."""
    other = Box(box.root.parent / "other")
    for phase in ADMIN:
        other.act(asked(only=(phase,)))
    return Path(other.layout.kubeconfig("admin")).read_text()


WRONG = {
    "missing": (None, "admin.conf does not exist", "init phase kubeconfig admin"),
    "empty": (lambda _: "", "admin.conf", ""),
    "garbage": (lambda _: "\0", "admin.conf", ""),
    "no credentials": (lambda _: "apiVersion: v1\nkind: Config\n", "admin.conf", ""),
    "another cluster": (of_another_cluster, "admin.conf trusts another CA than ca.crt", ""),
}


def refusal(box, doing):
    before = kept(box)
    with pytest.raises(KubewrightError) as refused:
        doing(box, asked(adopt=True))
    assert kept(box) == before
    assert box.clock.monotonic() == 0
    return refused.value


DOING = [functools.partial(Box.really, mode=mode) for mode in (Mode.PLAN, Mode.APPLY)]


@pytest.mark.parametrize("doing", DOING, ids=["plan", "act"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_machine_with_an_unreadable_cluster_is_neither_planned_nor_adopted(box, wrong, doing):
    """It would be treated as empty: every object would be created again over the existing ones."""
    content, what, remedy = WRONG[wrong]
    for phase in ADMIN:
        box.act(asked(only=(phase,)))
    path = Path(box.layout.kubeconfig("admin"))
    path.unlink()
    if content is not None:
        path.write_text(content(box))
    made_by_another(box)
    error = refusal(box, doing)
    assert what in str(error)
    assert remedy in error.remedy


@pytest.mark.parametrize("doing", DOING, ids=["plan", "act"])
def test_an_expired_administrator_certificate_gives_a_hint_to_renew_it(box, doing):
    for phase in (*ADMIN, *SUPER):
        box.act(asked(only=(phase,)))
    made_by_another(box)
    with pytest.raises(CertificateError, match=r"admin\.conf cannot be used: expired 35 d ago") as refused:
        doing(box, asked(adopt=True), clock=FakeClock(box.clock.now() + timedelta(days=400)))
    assert "certs renew" in refused.value.remedy


def test_a_super_admin_of_another_cluster_is_not_used(box):
    for phase in ADMIN:
        box.act(asked(only=(phase,)))
    Path(box.layout.kubeconfig("super-admin")).write_text(of_another_cluster(box))
    made_by_another(box)
    assert "super-admin.conf belongs to another cluster" in str(refusal(box, DOING[1]))


def test_our_own_machine_without_admin_conf_is_planned_with_a_warning(box):
    call = box.call(asked())
    machine_record.save(call.host, replace(machine_record.of_init(call.configuration), finished=True))
    made_by_another(box)
    assert box.really(asked()).changes
    (warning,) = box.warnings()
    assert "assumes that it is empty" in warning
    assert "admin.conf does not exist" in warning
