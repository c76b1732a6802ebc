"""Joining as a control plane: the downloaded shared files, the kubelet's server, the pod in which etcd learns, marks and order."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from init_kit import Box, asked
from join_kit import Cluster, JoinBox

from kubewright.apis.kubeadm.types import ClusterConfiguration, Etcd, ExternalEtcd
from kubewright.apis.machine import Addresses, Layout
from kubewright.base import yaml
from kubewright.base.clock import FakeClock
from kubewright.base.errors import (
    CertificateError,
    DocumentError,
    Forbidden,
    HostError,
    NotFound,
    Unreachable,
    ValidationError,
    WaitTimeout,
)
from kubewright.base.events import PhaseStarted, RecordingReporter, SilentReporter, Warned
from kubewright.base.randomness import SeededRandom
from kubewright.base.wait import InstantWaiter, PollingWaiter
from kubewright.etcd.api import Member, Status
from kubewright.etcd.recording import RecordingEtcd
from kubewright.host.network.listeners import Listener
from kubewright.host.states import Container, ContainerState
from kubewright.http.messages import Response
from kubewright.lifecycle.join import control_plane, etcd_learner, kubelet, operation
from kubewright.lifecycle.steps import kubelet as kubelet_steps
from kubewright.lifecycle.steps.certificates import shared_files
from kubewright.lifecycle.steps.health import ComponentWaiter
from kubewright.pki import ensure, specs, table
from kubewright.pki.encryption import sealing
from kubewright.pki.keys import Algorithm
from kubewright.pki.store import MemoryStore

KEY = "ab" * 32


@pytest.fixture(scope="module")
def files():
    """The files that control planes share, by their names in the Secret."""
    store, cluster = MemoryStore(), ClusterConfiguration(encryption_algorithm="ECDSA-P256")
    sources = ensure.IssuingSources(FakeClock(), SeededRandom(1))
    for row in table.CERTIFICATES:
        if isinstance(row, table.Authority):
            ensure.ensure(store, specs.of_authority(row, cluster), sources)
    ensure.ensure_key_pair(store, specs.KeyPairSpec(name="sa", base="sa", algorithm=Algorithm.ECDSA_P256), sources)
    return {name.replace("/", "-"): store[name] for name in store}


def sealed(files, *, key=KEY):
    parsed, random = sealing.parse_key(key), SeededRandom(2)
    return {
        name: base64.b64encode(sealing.seal(content, parsed, random=random) if content else b"").decode() for name, content in files.items()
    }


class Bootstrap:
    """What the bootstrap identity reads."""

    def __init__(self, data, *, error=None) -> None:
        self.data, self.error = data, error

    def get(self, resource, name, namespace):
        assert (resource.plural, name, namespace) == ("secrets", "kubeadm-certs", "kube-system")
        if self.error is not None:
            raise self.error
        return {"data": self.data}

    def raw(self, method, path):
        return Response(status=200, body=b"ok")


def context(box, data=None, *, key=KEY, error=None, resumed=False, etcd=None):
    cluster = ClusterConfiguration(etcd=etcd or Etcd())
    said = []
    return SimpleNamespace(
        configuration=SimpleNamespace(init=SimpleNamespace(certificate_key=key)),
        cluster=cluster,
        layout=box.layout,
        host=box.machine(box.layout),
        bootstrap=Bootstrap(data, error=error),
        reporter=SilentReporter(),
        clock=FakeClock(),
        join=SimpleNamespace(timeouts=SimpleNamespace(kubernetes_api_call=SimpleNamespace(seconds=1.0))),
        resumed=resumed,
        say=lambda topic, text: said.append(text),
        said=said,
    )


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path / "machine")


def downloaded(box):
    return {name.removeprefix("kubernetes/pki/"): mode for name, (mode, content) in box.snapshot().items() if content and "pki" in name}


def test_shared_files_are_downloaded_with_the_modes_of_kubeadm(box, files):
    changes = list(control_plane.download_certs(context(box, sealed(files))))
    assert len(changes) == 8
    assert {name: mode & 0o777 for name, mode in downloaded(box).items()} == {
        **dict.fromkeys(("ca.crt", "front-proxy-ca.crt", "etcd/ca.crt", "sa.pub"), 0o644),
        **dict.fromkeys(("ca.key", "front-proxy-ca.key", "etcd/ca.key", "sa.key"), 0o600),
    }
    assert all(b"PRIVATE" not in change.diff.encode() for change in changes)


def test_files_that_the_other_machine_lacked_are_skipped(box, files):
    list(control_plane.download_certs(context(box, sealed({**files, "ca.key": b"", "front-proxy-ca.key": b""}))))
    assert "ca.key" not in downloaded(box)
    assert "ca.crt" in downloaded(box)


def test_nothing_is_downloaded_without_a_key(box):
    assert list(control_plane.download_certs(context(box, {}, key=""))) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: {}, "lacks ca.crt, ca.key"),
        (lambda data: {**data, "ca.key": "!"}, "ca.key of the Secret kube-system/kubeadm-certs cannot be read"),
        (lambda data: {**data, "sa.key": data["ca.key"][:-8] + "AAAAAAA="}, "sa.key of the Secret kubeadm-certs cannot be decrypted"),
    ],
)
def test_shared_files_are_written_all_or_none(box, files, change, said):
    with pytest.raises(CertificateError) as caught:
        list(control_plane.download_certs(context(box, change(sealed(files)))))
    assert said in caught.value.what
    assert caught.value.remedy
    assert downloaded(box) == {}


def test_mismatched_shared_files_are_refused(box, files):
    for wrong in ({"ca.crt": b"no PEM"}, {"ca.key": files["etcd-ca.key"]}, {"sa.pub": b"x"}):
        with pytest.raises(CertificateError):
            list(control_plane.download_certs(context(box, sealed({**files, **wrong}))))
    assert downloaded(box) == {}


def test_a_wrong_key_is_reported_without_showing_it(box, files):
    wrong = "cd" * 32
    with pytest.raises(CertificateError) as caught:
        list(control_plane.download_certs(context(box, sealed(files), key=wrong)))
    assert "certificate key is not the one" in caught.value.detail
    assert wrong not in str(caught.value) + caught.value.remedy


def test_a_missing_secret_is_reported_with_its_lifetime_of_two_hours(box):
    with pytest.raises(CertificateError) as caught:
        list(control_plane.download_certs(context(box, error=NotFound("none", code=404))))
    assert "two hours" in caught.value.detail
    assert "upload-certs" in caught.value.remedy
    with pytest.raises(CertificateError) as caught:
        list(control_plane.download_certs(context(box, error=Forbidden("no", code=403))))
    assert "may not be read" in caught.value.what


def test_a_continued_join_needs_no_secret(box, files):
    list(control_plane.download_certs(context(box, sealed(files))))
    again = context(box, error=NotFound("none", code=404), resumed=True)
    assert list(control_plane.download_certs(again)) == []
    assert again.said == ["The certificates exist already"]


def test_files_of_an_external_etcd_have_their_configured_paths():
    external = Etcd(external=ExternalEtcd(endpoints=("https://e:2379",), ca_file="/e/ca", cert_file="/e/crt", key_file=""))
    places = shared_files(ClusterConfiguration(etcd=external), Layout())
    assert {name: str(path) for name, path in places.items() if "etcd" in name} == {
        "external-etcd-ca.crt": "/e/ca",
        "external-etcd.crt": "/e/crt",
        "external-etcd.key": "None",
    }


KUBELET_CONF = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: QQ==
    server: https://cluster.test:6443
  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
users:
- name: default-auth
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
"""


def test_the_kubelet_is_pointed_to_its_own_api_server_and_nothing_else_changes():
    server = "https://10.0.0.2:6443"
    moved = kubelet_steps.with_server(KUBELET_CONF.encode(), server)
    assert moved == KUBELET_CONF.replace("https://cluster.test:6443", server).encode()
    assert kubelet_steps.with_server(moved, server) is None


@pytest.mark.parametrize(
    "text", ["", "{", "- 1\n", "kind: Pod\n", "clusters: x\n", "clusters: [1]\n", "clusters: [{name: a, cluster: b}]\n"]
)
def test_a_kubelet_conf_that_is_no_kubeconfig_is_refused(text):
    with pytest.raises((DocumentError, ValidationError), match=r"kubelet\.conf"):
        kubelet_steps.with_server(text.encode(), "https://10.0.0.2:6443")


@pytest.mark.parametrize(
    ("control_plane", "phases", "asked"),
    [
        (False, {"kubelet-start", "etcd-join"}, "https://cluster:6443"),
        (True, {"kubelet-start", "etcd-join", "wait-control-plane"}, "https://cluster:6443"),
        (True, {"kubelet-start", "etcd-join"}, "https://10.0.0.2:6443"),
        (True, {"kubelet-start"}, "https://10.0.0.2:6443"),
    ],
)
def test_a_kubelet_without_a_later_switch_starts_with_its_own_api_server(control_plane, phases, asked):
    ctx = SimpleNamespace(
        control_plane=control_plane,
        bound=SimpleNamespace(phases=phases),
        runs=phases.__contains__,
        introduced=SimpleNamespace(server="https://cluster:6443"),
        addresses=Addresses.of_machine("10.0.0.2"),
    )
    assert kubelet.server(ctx) == asked


POD = """\
apiVersion: v1
kind: Pod
metadata:
  annotations: {a: b}
  labels: {component: etcd, tier: control-plane}
  name: etcd
  namespace: kube-system
spec:
  containers: [{name: etcd, command: [etcd], livenessProbe: {}, readinessProbe: {}, startupProbe: {}}]
  hostNetwork: true
"""


def test_the_learning_pod_is_not_mistaken_for_the_permanent_one():
    pod = etcd_learner._as_learner(yaml.load(POD, source="pod"))
    assert pod["metadata"] == {"name": "etcd-learner", "namespace": "kube-system"}
    assert pod["spec"]["containers"] == [{"name": "etcd-learner", "command": ["etcd"]}]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 2


def learning_context(box, *, waiter, clock):
    etcd_data = box.layout.etcd_data
    timeouts = SimpleNamespace(etcd_api_call=SimpleNamespace(seconds=2.0))
    quiet = SimpleNamespace(explained=lambda condition: condition, diagnose=lambda: "", remedy=lambda: "")
    return SimpleNamespace(
        layout=box.layout,
        host=box.machine(box.layout),
        addresses=Addresses.of_machine("10.0.0.2"),
        etcd=RecordingEtcd(),
        clock=clock,
        configuration=SimpleNamespace(init=SimpleNamespace(timeouts=timeouts)),
        components=ComponentWaiter(waiter=waiter, diagnosis=lambda names, bootstrap: quiet, within=2.0),
        waiter=waiter,
        data=etcd_data,
        resumed=False,
        node_name="two",
    )


def test_the_learning_pod_ends_when_the_data_has_arrived(box):
    clock, seen = FakeClock(), []
    ctx = learning_context(box, waiter=PollingWaiter(clock=clock, reporter=RecordingReporter()), clock=clock)
    snap = ctx.data / "member" / "snap"
    manifest = box.layout.manifest("etcd-learner")
    steps = iter([["db"], ["db", "0001.snap.db"], ["db", "0001.snap", "0001.snap.db"], ["db", "0001.snap"]])
    ctx.host = SimpleNamespace(
        ensure=lambda desired: seen.append(("ensure", desired.path)),
        remove=lambda path: seen.append(("remove", path)) or True,
        entries=lambda path: [snap / name for name in next(steps)] if path == snap else [],
        network=SimpleNamespace(listeners=list),
    )
    list(etcd_learner.learn(ctx, yaml.load(POD, source="pod")))
    assert seen == [("ensure", manifest.parent), ("ensure", manifest), ("remove", manifest)]
    assert next(steps, None) is None


def test_a_member_that_needs_no_snapshot_is_not_waited_for(box):
    clock = FakeClock()
    ctx = learning_context(box, waiter=PollingWaiter(clock=clock, reporter=RecordingReporter()), clock=clock)
    named = [Member(id=2, peer_urls=("https://10.0.0.2:2380",), name=name, learner=True) for name in ("", "", "two")]
    ctx.etcd = SimpleNamespace(members=lambda *, agreed: [named.pop(0) if len(named) > 1 else named[0]])
    list(etcd_learner.learn(ctx, yaml.load(POD, source="pod")))
    assert 1.5 < clock.monotonic() < 1.7
    ctx.etcd = SimpleNamespace(members=unreachable)
    with pytest.raises(WaitTimeout) as caught:
        list(etcd_learner.learn(ctx, yaml.load(POD, source="pod")))
    assert "nobody answers" in caught.value.detail
    assert "2380" in caught.value.remedy


def unreachable(*, agreed):
    raise Unreachable("nobody answers")


def test_no_learning_pod_is_used_if_the_kubelet_would_not_end_it(box):
    ctx = learning_context(box, waiter=InstantWaiter(), clock=FakeClock())
    files = {}
    ctx.host = SimpleNamespace(read=files.get)
    assert etcd_learner.possible(ctx)
    files[box.layout.kubeconfig("bootstrap-kubelet")] = KUBELET_CONF.replace("https://cluster.test:6443", "https://10.0.0.2:6443").encode()
    assert not etcd_learner.possible(ctx)
    files[box.layout.kubeconfig("kubelet")] = KUBELET_CONF.encode()
    assert etcd_learner.possible(ctx)


def test_nothing_is_waited_for_without_a_learning_pod(box):
    ctx = learning_context(box, waiter=InstantWaiter(), clock=FakeClock())
    assert list(etcd_learner.end(ctx)) == []


@pytest.mark.parametrize("resumed", [True, False])
def test_a_learning_etcd_is_not_mistaken_for_the_permanent_one(box, resumed):
    """After a power failure the kubelet may start the pod whose manifest has just been removed: what votes must not end a moment later."""
    clock = FakeClock()
    ctx = learning_context(box, waiter=PollingWaiter(clock=clock, reporter=RecordingReporter()), clock=clock)
    ctx.resumed = resumed
    ends = 1.0

    def containers(*, namespace):
        assert namespace == "kube-system"
        learning_state = ContainerState.RUNNING if clock.monotonic() < ends else ContainerState.EXITED
        states = {"etcd-learner": learning_state, "etcd": ContainerState.RUNNING}
        return [Container(id=name, name=name, pod=f"{name}-two", namespace=namespace, state=state) for name, state in states.items()]

    ctx.host = SimpleNamespace(runtime=SimpleNamespace(containers=containers))
    ctx.etcd = SimpleNamespace(status=lambda endpoint: Status(endpoint=endpoint, leader_id=1))
    etcd_learner.serving(ctx)
    assert (clock.monotonic() >= ends) is resumed


def test_an_etcd_that_the_kubelet_does_not_stop_is_stopped_by_restarting_it(box):
    clock, done, starting = FakeClock(), [], ["etcd-learner-two"]
    ctx = learning_context(box, waiter=PollingWaiter(clock=clock, reporter=RecordingReporter()), clock=clock)
    pods = [SimpleNamespace(name=f"{name}-two") for name in ("etcd", "etcd-learner", "kube-apiserver")]
    listening = [Listener(address="10.0.0.2", port=2380, user=0, inode=1)]

    def remove_sandbox(sandbox):
        if starting:
            raise HostError(f"{starting.pop()} is in starting state, can't be removed")
        listening.clear()
        done.append((sandbox.name, "removed"))

    ctx.host = SimpleNamespace(
        ensure=lambda desired: done.append((desired.name, desired.restart)),
        network=SimpleNamespace(listeners=lambda: listening),
        runtime=SimpleNamespace(sandboxes=lambda: pods, remove_sandbox=remove_sandbox),
    )
    list(etcd_learner.wait_until_gone(ctx, pods=("etcd-learner",)))
    assert done == [("kubelet", True), ("etcd-learner-two", "removed")]
    assert len(list(etcd_learner.wait_until_gone(ctx, pods=("etcd-learner",)))) == 1
    assert len(done) == 2


@pytest.mark.parametrize(("before", "warnings"), [((), 1), (("control-plane-prepare/certs",), 0)])
def test_kubeconfigs_of_an_expired_ca_give_a_warning_unless_certificates_did(tmp_path, before, warnings):
    plain, box = Box(tmp_path / "machine"), JoinBox(tmp_path / "machine")
    for phase in ("certs/ca", "certs/etcd-ca", "certs/front-proxy-ca", "certs/sa"):
        plain.act(asked(only=(phase,)))
    pair = [Path(box.layout.pki / f"ca.{kind}").read_bytes() for kind in ("crt", "key")]
    box.cluster = Cluster(authority=trustme.CA.from_pem(*pair))
    stored = next(body for body in box.cluster.objects if body["metadata"]["name"] == "kubeadm-config")
    stored["data"]["ClusterConfiguration"] += f"certificatesDir: {box.layout.pki}\n"
    box.clock.advance(3652 * 86_400)
    made = box.act(box.request(control_plane=True, only=(*before, "control-plane-prepare/kubeconfig")))
    names = ["kubeconfig admin.conf", "kubeconfig controller-manager.conf", "kubeconfig scheduler.conf"]
    assert [change.target for change in made][-3:] == names
    events = box.reporter.events
    [begun] = [at for at, one in enumerate(events) if isinstance(one, PhaseStarted) and one.phase == "control-plane-prepare/kubeconfig"]
    told = [one.text for one in events[begun:] if isinstance(one, Warned)]
    assert told == ["ca.crt is not valid now (expired 2 d ago): certificates that it has signed are refused"] * warnings
    assert (len(box.warnings()) > warnings) == bool(before)


def test_components_of_a_further_control_plane_start_in_order(box):
    there = set()
    asked = []
    order = operation.start_conditions(
        SimpleNamespace(
            cluster=ClusterConfiguration(),
            layout=box.layout,
            host=SimpleNamespace(state=lambda path: path if path in there else None),
            probe=SimpleNamespace(raw=lambda method, path: asked.append(path) or SimpleNamespace(status=500)),
        )
    )
    assert not order["kube-apiserver"]()
    there.add(box.layout.manifest("etcd"))
    assert order["kube-apiserver"]()
    assert not order["kube-scheduler"]()
    there.add(box.layout.manifest("kube-apiserver"))
    assert order["kube-scheduler"]()
    assert order["kube-controller-manager"]()
    assert asked == ["/livez", "/livez"]
