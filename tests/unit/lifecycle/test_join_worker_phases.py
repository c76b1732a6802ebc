"""Joining as a worker: what is read, written, waited for and removed, on a machine in a directory and a cluster in memory."""

from __future__ import annotations

import base64
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from init_kit import names
from join_kit import PREFLIGHT, SERVER, TOKEN, JoinBox, Kube

from kubewright.base import yaml
from kubewright.base.checks import Finding
from kubewright.base.errors import (
    APIError,
    CertificateError,
    CheckFailed,
    ConfigurationChanged,
    Forbidden,
    HostError,
    Interrupted,
    KubewrightError,
    Stopped,
    Unauthorized,
    ValidationError,
    WaitTimeout,
)
from kubewright.base.events import Line, PhaseSkipped, Waited, Waiting
from kubewright.base.records import replace
from kubewright.host.states import ServiceState
from kubewright.http import sync
from kubewright.http.messages import Response
from kubewright.kube.credentials import Access, BearerToken, ClientCertificate
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.diagnosis import watch
from kubewright.lifecycle.join.context import WORKER
from kubewright.pki import keys
from kubewright.pki.keys import Algorithm
from kubewright.pki.pins import PinMismatch
from kubewright.pki.requests import csr
from kubewright.preflight import lists
from kubewright.preflight.checks import Check

CA = "pki/ca.crt"


class Healthy:
    """A kubelet that reports that it is healthy."""

    def __init__(self, server: str, *, context: object) -> None:
        self.server = server
        assert context is None

    def request(self, method, target, /, *, timeout):
        assert (method, self.server + target) == ("GET", "http://127.0.0.1:10248/healthz")
        return Response(status=200, body=b"ok")

    def close(self):
        pass


@pytest.fixture
def box(tmp_path, monkeypatch):
    box = JoinBox(tmp_path / "machine")
    monkeypatch.setattr(sync, "Transport", Healthy)
    return box


def files(box):
    return sorted(name for name, (_, content) in box.snapshot().items() if content and not name.startswith(("run", "state", "kubelet/pki")))


def written(box, name):
    return yaml.load((Path(box.root) / name).read_bytes(), source=name)


def test_a_worker_gets_what_its_kubelet_needs_and_nothing_else(box):
    changes = box.act()
    assert "Node node1" in names(changes)
    assert [name for name in files(box) if name.startswith("kube")] == [
        "kubelet/config.yaml",
        "kubelet/instance-config.yaml",
        "kubelet/kubeadm-flags.env",
        "kubernetes/kubelet.conf",
        "kubernetes/pki/ca.crt",
    ]
    assert box.services.done == ["restart"]
    assert box.phases() == ["+kubelet-start", "-kubelet-start", "+kubelet-wait-bootstrap", "-kubelet-wait-bootstrap"]
    assert [event.text.splitlines()[0] for event in box.reporter.events if isinstance(event, Line) and not event.topic] == [
        "This machine has joined the cluster as the node node1:"
    ]
    found = machine_record.load(box.call(box.request()).host)
    assert (found.workflow, found.finished) == ("join", True)
    assert TOKEN[7:] not in found.configuration


def test_only_necessary_objects_are_read(box):
    box.act()
    assert box.cluster.read == [
        *("configmaps/cluster-info", "configmaps/cluster-info"),
        *("configmaps/kubeadm-config", "configmaps/kubelet-config", "configmaps/kube-proxy"),
        *("nodes/node1", "certificatesigningrequests"),
    ]
    assert box.cluster.asked == [
        Access(server=SERVER, verify=False),
        Access(server=SERVER, ca_pem=box.cluster.ca),
        Access(server=SERVER, ca_pem=box.cluster.ca, identity=BearerToken(TOKEN)),
    ]


def test_the_configuration_is_read_once_during_the_checks(box, monkeypatch):
    monkeypatch.setattr(lists, "join", lambda *_, **__: ())
    box.act(box.request(skip=()))
    assert box.cluster.read == [
        *("configmaps/cluster-info", "configmaps/cluster-info"),
        *("configmaps/kubeadm-config", "configmaps/kubelet-config", "configmaps/kube-proxy"),
        *("nodes/node1", "certificatesigningrequests"),
    ]


def test_objects_that_could_not_be_read_during_the_checks_are_read_again(box, monkeypatch):
    monkeypatch.setattr(lists, "join", lambda *_, **__: ())
    get, refused = Kube.get, []

    def at_first_refused(self, resource, name, namespace=None):
        if name == "kubelet-config" and not refused:
            refused.append(name)
            raise Forbidden("not yet", code=403)
        return get(self, resource, name, namespace)

    monkeypatch.setattr(Kube, "get", at_first_refused)
    box.act(box.request(skip=()))
    assert [name for name in box.cluster.read if name.startswith("configmaps/ku")] == [
        *("configmaps/kubeadm-config", "configmaps/kube-proxy", "configmaps/kubelet-config"),
    ]
    assert box.services.done == ["restart"]


def request(box, *, age, status=None):
    made = box.clock.now() - timedelta(seconds=age)
    return {"metadata": {"name": "csr-1", "creationTimestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ")}, "status": status or {}}


def test_the_kubelet_is_started_when_requests_of_others_are_answered(box):
    box.cluster.requests = [[request(box, age=3)], [request(box, age=3)], [request(box, age=3, status={"certificate": "PEM"})]]
    box.act()
    assert box.cluster.read.count("certificatesigningrequests") == 3
    assert box.services.done == ["restart"]
    assert next(event.what for event in box.reporter.events if isinstance(event, Waited)) == "the cluster to sign certificates"


@pytest.mark.parametrize("age", [-3600, 0, 60, 3600])
def test_new_and_hopeless_requests_are_not_waited_for(box, age):
    box.cluster.requests = [[request(box, age=age)], [request(box, age=3)]]
    box.act()
    assert box.cluster.read.count("certificatesigningrequests") == 1


def test_an_unanswered_request_delays_the_kubelet_only_for_seconds(box):
    box.cluster.requests = [[request(box, age=3)] for _ in range(5000)]
    before = box.clock.monotonic()
    box.act()
    assert 5 < box.clock.monotonic() - before < 30
    assert box.services.done == ["restart"]


class Slow(list):
    """Answers that take time, during which the machine is checked."""

    def pop(self, index):
        time.sleep(0.005)
        return super().pop(index)


def test_failed_starts_before_the_kubelet_has_its_configuration_do_not_count(box, monkeypatch):
    """Like one that a package has installed: systemd starts it every ten seconds."""
    looks = []

    def state(name, /):
        looks.append(name)
        waits = not box.services.done
        return ServiceState(running=not waits, enabled=True, failed=waits, again=waits, restarts=len(looks))

    monkeypatch.setattr(box.services, "state", state)
    monkeypatch.setattr(watch, "FIRST", 0.0)
    monkeypatch.setattr(watch, "PAUSE", 0.0)
    box.cluster.requests = Slow([request(box, age=1.5)] for _ in range(100))
    box.act()
    assert box.services.done == ["restart"]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"items": [1]}', b'{"items": [{"metadata": {"creationTimestamp": "x"}}]}'])
def test_an_invalid_list_of_requests_delays_nothing(box, monkeypatch, body):
    monkeypatch.setattr(Kube, "raw", lambda *_, **__: Response(status=200, body=body))
    box.act()
    assert box.services.done == ["restart"]


def test_unreadable_requests_are_not_waited_for(box):
    box.cluster.requests = None
    box.act()
    assert box.services.done == ["restart"]


def test_the_kubelet_has_the_token_only_while_it_needs_it(box, monkeypatch):
    seen = {}
    start = box.services.start

    def look(name, /, *, verb="start"):
        path = Path(box.layout.kubeconfig("bootstrap-kubelet"))
        seen["mode"], seen["document"] = oct(path.stat().st_mode & 0o777), yaml.load(path.read_bytes(), source="")
        start(name, verb=verb)

    box.services.start = look
    box.act()
    assert seen["mode"] == "0o600"
    document = seen["document"]
    assert document["current-context"] == "tls-bootstrap-token-user@kubernetes"
    assert (document["clusters"][0]["cluster"]["server"], document["users"][0]["user"]) == (SERVER, {"token": TOKEN})
    assert not Path(box.layout.kubeconfig("bootstrap-kubelet")).exists()


def test_the_same_command_changes_nothing_even_without_a_valid_token(box):
    box.act()
    before = box.snapshot()
    box.cluster.token = "nobody"
    late = box.request(token="zzzzzz.0123456789abcdef")
    assert not box.plan(late)
    assert box.act(late) == ()
    assert {name: one for name, one in box.snapshot().items() if not name.startswith("state")} == {
        name: one for name, one in before.items() if not name.startswith("state")
    }
    assert isinstance(box.cluster.asked[-1].identity, ClientCertificate)
    assert box.services.done == ["restart"]


def test_a_plan_on_a_fresh_machine_shows_everything_and_writes_nothing(box):
    before = box.snapshot()
    found = box.plan()
    assert names(found.changes)[0] == "Node node1"
    assert len(found.changes) == 10
    assert TOKEN[7:] not in found.text()
    assert box.snapshot() == before


@pytest.mark.parametrize("name", ["kubelet/config.yaml", "kubelet/kubeadm-flags.env"])
def test_differences_are_shown_and_repaired(box, name):
    box.act()
    path = Path(box.root) / name
    right = path.read_bytes()
    path.write_bytes(right + b"# edited\n")
    assert names(box.plan().changes) == [f"file {path}", "service kubelet"]
    assert names(box.act()) == [f"file {path}", "service kubelet"]
    assert path.read_bytes() == right
    assert box.services.done == ["restart", "restart"]


def test_another_configuration_is_refused_before_the_cluster_is_contacted(box):
    box.act()
    box.cluster.read.clear()
    with pytest.raises(ConfigurationChanged, match="name: other"):
        box.act(box.request(node_name="other"))
    assert box.cluster.read == []


def test_a_container_runtime_that_does_not_listen_yet_is_no_other_configuration(box):
    box.detected = replace(box.detected, cri_sockets=("unix:///var/run/crio/crio.sock",))
    box.act()
    box.detected = replace(box.detected, cri_sockets=())
    assert box.act() == ()


def test_ignored_checks_and_tokens_are_no_other_configuration(box):
    box.act()
    assert box.act(box.request(token="zzzzzz.0123456789abcdef", ignore_preflight_errors=("Swap",))) == ()


def test_a_ready_node_of_the_same_name_is_not_replaced(box):
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    box.cluster.objects.append(node)
    with pytest.raises(APIError, match="a Node with the name node1 exists") as caught:
        box.act()
    assert "kubectl delete node node1" in caught.value.remedy
    assert files(box) == []


@pytest.fixture
def fit(monkeypatch):
    """Every machine passes the checks."""
    monkeypatch.setattr(lists, "join", lambda *_, **__: [])


def ready_node(name):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def test_a_name_in_use_is_reported_before_anything_is_stored(box, fit):
    box.cluster.objects.append(ready_node("node1"))
    with pytest.raises(APIError, match="a Node with the name node1 exists"):
        box.act(box.request(skip=()))
    assert [name for name in box.snapshot() if not name.startswith("run")] == []
    assert "Node other" in names(box.act(box.request(skip=(), node_name="other")))
    assert box.cluster.read.count("nodes/other") == 1


def test_whole_joins_report_phases_and_why_others_are_skipped(box, fit):
    box.act(box.request(skip=()))
    assert [name for name in box.phases() if name[0] == "+"] == ["+preflight", "+kubelet-start", "+kubelet-wait-bootstrap"]
    reasons = {event.phase: event.reason for event in box.reporter.events if isinstance(event, PhaseSkipped)}
    assert set(reasons.values()) == {WORKER}
    assert {"control-plane-prepare", "check-etcd", "etcd-join", "control-plane-join", "wait-control-plane"} <= set(reasons)


def test_a_failed_check_is_reported_without_waiting_for_the_cluster(box, monkeypatch):
    monkeypatch.setattr(lists, "join", lambda *_, **__: [Check(name="Wrong", find=lambda _: [Finding(text="no", remedy="mend it")])])
    box.cluster.down = True
    with pytest.raises(CheckFailed, match=r"\[ERROR Wrong\]"):
        box.act(box.request(skip=()))
    assert machine_record.load(box.call(box.request()).host) is None


def test_an_unready_node_of_the_same_name_is_replaced(box):
    box.cluster.objects.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}})
    assert "Node node1" not in names(box.act())


def test_the_name_is_that_of_the_kubelet_argument(box):
    documents = yaml.load_all(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nskipPhases: [preflight]\n"
        f"discovery: {{bootstrapToken: {{apiServerEndpoint: 'cluster.test:6443', token: {TOKEN}, unsafeSkipCAVerification: true}}}}\n"
        "nodeRegistration: {kubeletExtraArgs: [{name: hostname-override, value: other}],"
        " taints: [{key: a, effect: NoSchedule}, {key: b, value: c, effect: NoExecute}]}\n",
        source="join.yaml",
    )
    box.act(box.request(documents=documents, skip=()))
    assert "nodes/other" in box.cluster.read
    flags = (Path(box.root) / "kubelet/kubeadm-flags.env").read_text()
    assert flags == 'KUBELET_KUBEADM_ARGS="--register-with-taints=a:NoSchedule,b=c:NoExecute --hostname-override=other"\n'


def test_a_kubelet_without_certificate_is_reported_with_its_last_output(box):
    box.services.broken = True
    with pytest.raises(WaitTimeout, match="something is wrong") as caught:
        box.act()
    assert "journalctl -xeu kubelet" in caught.value.remedy
    assert box.clock.monotonic() >= 300
    assert not Path(box.layout.kubeconfig("bootstrap-kubelet")).exists()
    # and the next run continues from there
    box.services.broken = False
    box.services.done.clear()
    box.act()
    assert machine_record.load(box.call(box.request()).host).finished


def certificate_request(box, *conditions: str):
    made = box.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    spec = {
        "signerName": csr.CLIENT_SIGNER,
        "request": base64.b64encode(csr.node_client_request("node1", keys.generate(Algorithm.ECDSA_P256))).decode(),
    }
    status = {"conditions": [{"type": one, "message": "who are you?"} for one in conditions]}
    return {"metadata": {"name": "csr-1", "creationTimestamp": made}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("conditions", "error", "said"),
    [
        ((), WaitTimeout, "certificate request csr-1 is Pending, and nobody approves it: this machine is not bound to ClusterRole"),
        (("Denied",), KubewrightError, "certificate request csr-1 was denied: who are you?"),
    ],
)
def test_the_state_of_the_request_is_reported_for_a_kubelet_without_certificate(box, conditions, error, said):
    box.services.broken = True
    asked = certificate_request(box, *conditions)
    box.cluster.answers["certificatesigningrequests"] = lambda call: {"metadata": {}, "items": [asked]} if call.verb == "list" else asked
    with pytest.raises(error) as caught:
        box.act()
    assert said in str(caught.value)
    assert "csr-1" in caught.value.remedy
    used = [one for one in box.cluster.asked if one.identity == BearerToken(TOKEN)]
    assert len(used) >= 2, "it asks with what the kubelet asks with"


def test_a_kubelet_started_with_another_token_is_restarted(box):
    box.services.broken = True
    with pytest.raises(WaitTimeout):
        box.act()
    files = [path for path in Path(box.root).rglob("*") if path.is_file()]
    began = max(path.stat().st_mtime for path in files) - 30
    for path in files:
        os.utime(path, (began - 30, began - 30))
    box.services.state = lambda name, /: ServiceState(running=True, enabled=True, since=began)
    before = list(box.services.done)
    box.services.broken = False
    box.act()
    assert box.services.done == [*before, "restart"]


def test_the_kubelet_of_a_worker_finds_its_directory_of_static_pods(box):
    box.act()
    found = Path(box.layout.manifests)
    assert (found.is_dir(), found.stat().st_mode & 0o777) == (True, 0o700)


def test_a_health_port_of_zero_is_not_waited_for(box, monkeypatch):
    monkeypatch.setattr(sync, "Transport", None)
    patches = Path(box.root) / "patches"
    patches.mkdir(parents=True)
    (patches / "kubeletconfiguration.yaml").write_text("healthzPort: 0\n")
    box.act(box.request(patches=str(patches)))
    assert written(box, "kubelet/config.yaml")["healthzPort"] == 0


def test_a_health_port_that_is_not_a_number_is_left_to_the_kubelet(box):
    patches = Path(box.root) / "patches"
    patches.mkdir(parents=True)
    (patches / "kubeletconfiguration.yaml").write_text("healthzPort: soon\n")
    box.act(box.request(patches=str(patches)))
    assert written(box, "kubelet/config.yaml")["healthzPort"] == "soon"
    waited, healthy = box.lines("kubelet-check")
    assert waited == "Waiting for a healthy kubelet at http://127.0.0.1:10248/healthz. This can take up to 4m0s"
    assert healthy.startswith("The kubelet is healthy after ")


def test_a_refused_token_is_reported_soon(box):
    box.cluster.token = "nobody"
    with pytest.raises(Unauthorized):
        box.act()
    assert 2 <= box.clock.monotonic() < 3
    assert files(box) == []


@pytest.mark.parametrize("answers", [[403, 403, 403], [500, 403], [503]])
def test_a_server_that_has_not_loaded_permissions_is_waited_for(box, answers):
    """It has just been restarted: until it has read the permissions, it refuses everything, `/readyz` too."""
    box.cluster.ready = list(answers)
    box.act()
    assert box.cluster.read.count("readyz") == len(answers)
    assert box.clock.monotonic() > 2 * len(answers)
    assert box.services.done == ["restart"]
    told = [event for event in box.reporter.events if isinstance(event, Waiting) and event.what == "the API server to answer"]
    assert len(told) >= len(answers)
    assert all("no rights" in event.reason for event in told)


@pytest.mark.parametrize("answer", [200, 401, 404])
def test_a_refusal_of_a_ready_server_is_final(box, answer):
    box.cluster.ready = [answer, 403]
    with pytest.raises(Forbidden):
        box.act()
    assert box.cluster.read.count("readyz") == 1
    assert 2 <= box.clock.monotonic() < 3


@pytest.mark.parametrize("answers", [[500, 500, 500], [403, None, 503]])
def test_a_server_that_has_not_loaded_tokens_is_waited_for(box, answers):
    """It has just been started, and serves before it has read the Secrets: with a token even `/readyz` is refused."""
    box.cluster.unread = list(answers)
    box.act()
    assert box.cluster.read.count("readyz") == len(answers)
    assert 2 * len(answers) < box.clock.monotonic() < 10
    assert box.cluster.asked.count(Access(server=SERVER, ca_pem=box.cluster.ca)) == 2  # with the second read of discovery
    assert box.services.done == ["restart"]


@pytest.mark.parametrize("answer", [200, 401, 404])
def test_a_token_refused_by_a_ready_server_is_final(box, answer):
    """401 even without a token: anonymous requests are disabled."""
    box.cluster.unread = [answer, 500]
    with pytest.raises(Unauthorized):
        box.act()
    assert box.cluster.read.count("readyz") == 1
    assert 2 <= box.clock.monotonic() < 3


@pytest.mark.parametrize(("refused", "error"), [("unread", Unauthorized), ("ready", Forbidden)])
def test_a_refusal_is_soon_final_if_readiness_is_forbidden(box, refused, error):
    """`/readyz` is then always forbidden; an answer for cluster-info shows that permissions are known."""
    box.cluster.knows_rights = True
    setattr(box.cluster, refused, [403] * 99)
    with pytest.raises(error):
        box.act()
    assert box.cluster.read.count("readyz") == 2
    assert 4 <= box.clock.monotonic() < 6


def test_tokens_may_be_loaded_after_permissions(box):
    box.cluster.knows_rights, box.cluster.unread = True, [403]
    box.act()
    assert box.cluster.read.count("readyz") == 1
    assert box.services.done == ["restart"]


def test_a_wrong_pin_ends_the_join(box):
    with pytest.raises(PinMismatch):
        box.act(box.request(ca_cert_hashes=(f"sha256:{'0' * 64}",)))


def test_a_cluster_without_kube_proxy_is_accepted(box):
    box.cluster.objects = [body for body in box.cluster.objects if body["metadata"]["name"] != "kube-proxy"]
    box.act()
    assert any("kube-proxy" in text for text in box.warnings())


def test_warnings_about_the_cluster_configuration_are_not_repeated_by_joins(box):
    proxy = next(body for body in box.cluster.objects if body["metadata"]["name"] == "kube-proxy")
    proxy["data"]["config.conf"] = proxy["data"]["config.conf"].replace("0.0.0.0", "'::'")
    box.act()
    assert box.warnings() == []


def test_a_missing_cluster_configuration_gives_a_hint(box):
    box.cluster.objects = [body for body in box.cluster.objects if body["metadata"]["name"] != "kubeadm-config"]
    with pytest.raises(APIError) as caught:
        box.act()
    assert "upload-config kubeadm" in caught.value.remedy


def discovery_file(box, *, user="{}", ca=True):
    from kubewright.tokens import cluster_info

    document = cluster_info.document(server=SERVER, ca_pem=box.cluster.ca)
    if not ca:
        del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path = Path(box.root) / "discovery.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.dump(document))
    return str(path)


def test_a_machine_joins_by_file(box):
    box.act(box.request(file=discovery_file(box)))
    assert box.cluster.asked == [
        Access(server=SERVER, ca_pem=box.cluster.ca),
        Access(server=SERVER, ca_pem=box.cluster.ca, identity=BearerToken(TOKEN)),
    ]
    assert Path(box.layout.kubeconfig("kubelet")).exists()


def test_a_discovery_file_without_credentials_requires_a_token(box):
    with pytest.raises(KubewrightError, match=r"tlsBootstrapToken|credentials"):
        box.act(box.request(file=discovery_file(box), token=""))


def test_a_vanished_discovery_file_is_reported(box):
    with pytest.raises(ValidationError, match=r"this file does not exist"):
        box.act(box.request(file=f"{box.root}/nowhere.conf"))


def test_single_phases_are_continued_by_the_whole_command(box):
    host = box.call(box.request()).host
    for phase in ("preflight", "kubelet-start", "kubelet-wait-bootstrap"):
        box.act(box.request(only=(phase,), skip=(), ignore_preflight_errors=("all",)))
        record = machine_record.load(host)
        assert (record is not None, record is not None and record.finished) == (phase != "preflight", False)
    assert not box.act()
    assert machine_record.load(host).finished
    with pytest.raises(ConfigurationChanged):
        box.act(box.request(node_name="other"))


def test_another_configuration_is_accepted_after_a_failed_kubelet_phase(box):
    mine = box.layout.kubernetes / "pki/mine.crt"
    box.services.broken = True
    box.act(box.request(only=("kubelet-start",), skip=()))
    box.act(box.request(only=("kubelet-start",), skip=(), node_name="second"))
    Path(mine).write_text("mine")
    box.services.broken = False
    box.services.stop = box.services.done.append
    box.act(box.request(node_name="third"))
    record = machine_record.load(box.call(box.request()).host)
    assert (record.finished, "name: third" in record.configuration, Path(mine).read_text()) == (True, True, "mine")
    assert "Removing what an earlier attempt with another configuration left" in "\n".join(box.lines())


def test_a_single_phase_does_not_change_record_or_other_machines(box):
    box.act()
    host, record = box.call(box.request()).host, Path(box.layout.machine_record)
    before = record.read_bytes()
    box.act(box.request(only=("kubelet-start",), skip=(), node_name="other"))
    assert record.read_bytes() == before
    record.unlink()
    box.act(box.request(only=("kubelet-start",), skip=()))
    assert machine_record.load(host) is None


def test_a_single_phase_waits_for_the_kubelet(box):
    box.act(box.request(only=("kubelet-start",), skip=()))
    assert Path(box.layout.kubeconfig("bootstrap-kubelet")).exists()
    box.cluster.read.clear()
    box.act(box.request(only=("kubelet-wait-bootstrap",), skip=()))
    assert not Path(box.layout.kubeconfig("bootstrap-kubelet")).exists()
    assert box.cluster.read == []


@pytest.mark.parametrize("only", [(), ("kubelet-start",)])
@pytest.mark.parametrize("ends", [KeyboardInterrupt(), Stopped(15), WaitTimeout("it does not start")])
def test_bootstrap_credentials_are_removed_however_join_ends(box, ends, only):
    """A token in a file is removed with the request; the same command writes it again."""

    def start(name, /, *, verb="start"):
        assert Path(box.layout.kubeconfig("bootstrap-kubelet")).exists()
        raise ends

    box.services.start = start
    with pytest.raises((Interrupted, WaitTimeout)):
        box.act(box.request(only=only, skip=() if only else PREFLIGHT))
    assert not Path(box.layout.kubeconfig("bootstrap-kubelet")).exists()
    del box.services.start
    box.act()
    assert not Path(box.layout.kubeconfig("bootstrap-kubelet")).exists()


def test_a_refused_machine_keeps_nothing(box, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CheckFailed):
        box.act(box.request(skip=()))
    assert [name for name in box.snapshot() if not name.startswith("run")] == []


def test_a_foreign_kubelet_conf_is_not_used_for_discovery(box):
    Path(box.layout.kubernetes).mkdir(parents=True)
    Path(box.layout.kubeconfig("kubelet")).write_text("left over")
    box.act(box.request(only=("kubelet-start",), skip=()))
    assert box.cluster.asked[0] == Access(server=SERVER, verify=False)


def test_a_dry_run_without_a_cluster_uses_placeholder_data(box, tmp_path):
    box.cluster.down = True
    directory = tmp_path / "dry"
    box.dry_run(box.layout.state.parent.parent / "dry")
    assert sorted(path.name for path in directory.iterdir()) == [
        *("bootstrap-kubelet.conf", "ca.crt", "config.yaml", "instance-config.yaml", "kubeadm-flags.env"),
    ]
    assert yaml.load((directory / "bootstrap-kubelet.conf").read_bytes(), source="")["clusters"][0]["cluster"]["server"] == (
        "https://192.168.0.101:6443"
    )
    assert any("stand-ins" in text for text in box.warnings())
    assert files(box) == []


def test_a_dry_run_reads_an_answering_cluster(box, tmp_path):
    box.dry_run(box.layout.state.parent.parent / "dry")
    document = yaml.load((tmp_path / "dry" / "bootstrap-kubelet.conf").read_bytes(), source="")
    assert document["clusters"][0]["cluster"]["server"] == SERVER
    assert files(box) == []
    assert box.warnings() == []


def test_errors_in_files_of_the_kubelet_are_reported(box):
    Path(box.root).mkdir(parents=True)
    Path(box.layout.kubelet).write_text("a file where a directory should be")
    with pytest.raises(HostError):
        box.act()


def test_a_cluster_that_cannot_prove_its_identity_is_refused(box):
    from kubewright.kube.credentials import Anonymous
    from kubewright.lifecycle.join import kubelet

    with pytest.raises(CertificateError, match="this machine has no credentials"):
        kubelet._credentials(Anonymous())
