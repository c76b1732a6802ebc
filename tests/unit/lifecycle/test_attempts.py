"""A run that is refused, or fails before it has lasting effects, does not block another configuration, which gives the result of a fresh machine."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from attempts_kit import KEY, Attempts, Healthy, failing, state, write
from init_kit import asked, names

from kubewright.base.change import Action, Change
from kubewright.base.checks import Finding
from kubewright.base.errors import CertificateError, CheckFailed, ConfigurationChanged, HostError, Unauthorized, WaitTimeout
from kubewright.base.records import replace
from kubewright.host.filesystem.files import Files
from kubewright.host.network.interfaces import PortOwner, RealNetwork
from kubewright.host.real import RealHost
from kubewright.http import sync
from kubewright.lifecycle import attempts, machine_record
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.init import operation as init
from kubewright.lifecycle.steps import stand_ins
from kubewright.pki import certificates
from kubewright.preflight import lists
from kubewright.preflight.checks import Check
from operation_kit import stand_in_machine

_AFTER = "upload-config, mark-control-plane, bootstrap-token, kubelet-finalize, addon, show-join-command, control-plane-check"
FAILS = f"skipPhases: [preflight, {_AFTER}]\n"
ENDS = f"skipPhases: [preflight, {_AFTER}, wait-control-plane]\n"
PHASES = ("certs/apiserver", "etcd/local", "kubelet-start", "wait-control-plane")
CHANGES = {
    "other names": {"cluster": "apiServer: {certSANs: [other.test]}\n"},
    "another node": {"init": "nodeRegistration: {name: other}\n"},
    "other lives": {"cluster": "caCertificateValidityPeriod: 20000h0m0s\n"},
    "arguments": {"cluster": "apiServer: {extraArgs: [{name: v, value: '4'}]}\n"},
    "external etcd": {"cluster": "etcd: {external: {endpoints: ['http://192.0.2.1:2379']}}\n"},
    "another address": {"init": "localAPIEndpoint: {advertiseAddress: 10.98.0.99}\n"},
    "other places": {"cluster": "certificatesDir: ROOT/other/pki\netcd: {local: {dataDir: ROOT/other/etcd}}\n"},
}
OTHER = CHANGES["other names"]
WORKER = {"node_name": "worker"}
PLANE = {"control_plane": True, "certificate_key": KEY, "advertise_address": "10.98.0.12"}
LEFT = "Removing what an earlier attempt with another configuration left: "


def given(box, *, cluster="", init="", skip=ENDS):
    return asked(cluster=cluster.replace("ROOT", str(box.root)), init=skip + init)


def attempt(box, *, fails="wait-control-plane", **change: str):
    """An `init` that fails."""
    with pytest.raises(WaitTimeout):
        box.init(given(box, skip=FAILS, **change), fails=fails, error=WaitTimeout("the API server does not start"))


def seen(box, **change: str):
    return state(box.root, box.call(given(box, **change)).host.layout)


@pytest.fixture
def box(tmp_path, monkeypatch):
    monkeypatch.setattr(sync, "Transport", Healthy)
    return Attempts(tmp_path / "machine")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The result of a run on a machine without earlier attempts."""

    @functools.cache
    def fresh(change="", *, joins=None):
        box = Attempts(tmp_path_factory.mktemp("fresh") / "machine")
        if joins is not None:
            JOINS[joins](box)
            return state(box.root, box.layout)
        box.init(given(box, **CHANGES[change]))
        return seen(box, **CHANGES[change])

    return fresh


# -- init


@pytest.mark.parametrize(
    ("fails", "change"),
    [*((PHASES[-1], change) for change in CHANGES), *((phase, "other names") for phase in PHASES[:-1])],
)
def test_another_configuration_after_a_failed_init_gives_the_result_of_a_fresh_machine(box, fresh, fails, change, matrix):
    with matrix("other configurations after init").cell(f"init, failed before {fails}", change):
        attempt(box, fails=fails)
        box.init(given(box, **CHANGES[change]))
        assert seen(box, **CHANGES[change]) == fresh(change)
        assert [pod.id for pod in box.runtime.pods if pod.id not in {"etcd", *(f"kube-{name}" for name in NAMES)}] == ["theirs"]


NAMES = ("apiserver", "controller-manager", "scheduler")


def test_repeated_attempts_leave_nothing(box, fresh):
    for change in ("other places", "external etcd", "another node"):
        attempt(box, **CHANGES[change])
    box.init(given(box, **OTHER))
    assert seen(box, **OTHER) == fresh("other names")


def test_pods_whose_containers_are_starting_are_removed_by_a_further_attempt(box, fresh):
    attempt(box)
    box.runtime.starting = {pod.id for pod in box.runtime.pods if pod.id != "theirs"}
    assert len(box.runtime.starting) == 4
    box.init(given(box, **OTHER))
    assert box.runtime.starting == set()
    assert seen(box, **OTHER) == fresh("other names")


def test_removed_files_are_reported_once(box):
    attempt(box)
    assert not [line for line in box.lines() if line.startswith(LEFT)]
    box.init(given(box, **OTHER))
    (line,) = [line for line in box.lines("preflight") if line.startswith(LEFT)]
    assert f"{box.layout.certificate('apiserver')} " in line
    assert f"{box.layout.etcd_data}/member" in line


def test_a_machine_unsuitable_for_the_other_configuration_is_left_as_a_fresh_one(box, monkeypatch):
    attempt(box)
    monkeypatch.setattr(lists, "init", lambda *_, resumed: [Check(name="Wrong", find=lambda _: [Finding(text="no", remedy="mend it")])])
    with pytest.raises(CheckFailed):
        box.init(asked(**OTHER))
    assert [name for name in box.snapshot() if not name.startswith("run")] == ["state"]
    assert box.services.running is False


class Killed(BaseException):
    """Simulates kill -9."""


def test_a_killed_run_is_replaced_like_a_failed_one(box, fresh, monkeypatch):
    monkeypatch.setattr(attempts.Attempt, "fail", lambda _: None)
    with pytest.raises(Killed):
        box.init(given(box, skip=FAILS), fails="kubelet-start", error=Killed())
    box.init(given(box, **OTHER))
    assert seen(box, **OTHER) == fresh("other names")


@pytest.mark.parametrize("removals", [0, 1, 20])
def test_a_killed_removal_is_completed_by_the_next_run(box, fresh, removals):
    class DyingFiles(Files):
        left = removals

        def remove(self, path, /, *, below):
            if self.left == 0:
                raise Killed
            self.left -= 1
            super().remove(path, below=below)

    attempt(box)
    healthy, files = box.machine, DyingFiles(durable=False)
    box.machine = lambda layout: healthy(layout, files=files)
    with pytest.raises(Killed):
        box.init(given(box, **OTHER))
    box.machine = healthy
    box.init(given(box, **OTHER))
    assert seen(box, **OTHER) == fresh("other names")


def test_the_same_configuration_continues_with_existing_files(box):
    attempt(box, fails="kubelet-start")
    authority = Path(box.layout.certificate("ca")).read_bytes()
    changes = box.init(given(box)).changes
    assert not [name for name in names(changes) if name.startswith("certificate")]
    assert Path(box.layout.certificate("ca")).read_bytes() == authority
    assert not [line for line in box.lines() if line.startswith(LEFT)]
    kept = json.loads(Path(box.layout.machine_record).read_text())
    assert (kept["finished"], sorted(kept)) == (True, ["configuration", "finished", "format", "workflow"])


def test_a_plan_reports_removals_and_creations_and_does_nothing(box):
    attempt(box)
    before = box.snapshot()
    planned = [change.target for change in box.init(given(box, **OTHER), mode=Mode.PLAN).plan.changes]
    assert box.snapshot() == before
    done = names(box.init(given(box, **OTHER)).changes)
    assert f"file {box.layout.machine_record}" in planned
    assert sorted({*planned} ^ {*done}) == []


def test_a_dry_run_is_that_of_a_fresh_machine(box, tmp_path):
    def told(box):
        box.reporter.events.clear()
        box.init(given(box, **OTHER), mode=Mode.NARRATE)
        return [line.replace(str(box.root), "ROOT") for line in box.lines() if "dryrun" not in line]

    attempt(box)
    before = box.snapshot()
    assert told(box) == told(Attempts(tmp_path / "fresh"))
    assert {name: one for name, one in box.snapshot().items() if name != "kubernetes/tmp"} == before


# -- files that do not belong to an attempt


def authority(tmp_path):
    """A user's CA, as its two files."""
    made = Attempts(tmp_path / "theirs")
    made.init(asked(only=("certs/ca",)))
    return {name: (Path(made.layout.pki) / name).read_text() for name in ("ca.crt", "ca.key")}


@pytest.mark.parametrize("when", ["before", "between", "between, beside another failure"])
def test_files_provided_by_users_are_used_and_stay(box, tmp_path, when):
    theirs = authority(tmp_path)
    provide = lambda: [write(box.layout.pki / name, text) for name, text in theirs.items()]  # noqa: E731
    if when == "before":
        provide()
    attempt(box, fails="kubeconfig/controller-manager" if when == "before" else "certs/ca")
    if when != "before":
        provide()
    if "beside" in when:
        attempt(box)
    write(box.layout.kubelet / "config.json", "credentials")
    write(box.layout.kubernetes / "mine.conf", "mine")
    box.init(given(box, **OTHER))
    assert {name: (Path(box.layout.pki) / name).read_text() for name in theirs} == theirs
    (made,) = certificates.parse(Path(box.layout.certificate("apiserver")).read_bytes())
    assert made.issued_by(certificates.parse(theirs["ca.crt"].encode())[0])
    assert "other.test" in made.names.dns
    assert (Path(box.layout.kubelet) / "config.json").read_text() == "credentials"
    assert (Path(box.layout.kubernetes) / "mine.conf").read_text() == "mine"


def test_data_of_an_earlier_etcd_stays(box):
    write(box.layout.etcd_data / "member/wal/0.wal", "precious")
    attempt(box, fails="kubelet-start")
    box.init(given(box, **CHANGES["external etcd"]))
    assert (Path(box.layout.etcd_data) / "member/wal/0.wal").read_text() == "precious"


# -- lasting effects


def stays(box, *, made=OTHER):
    """The machine did not change when another configuration was refused."""
    before = box.snapshot()
    with pytest.raises(ConfigurationChanged, match="was created with another configuration") as refused:
        box.init(given(box, **made))
    assert "kubewright reset" in refused.value.remedy
    assert box.snapshot() == before
    assert "stop" not in {verb for verb, _ in box.services.done}


@pytest.mark.parametrize("mark", [b"k8s\0\n\x0f\n\x02v1", b"/registry/namespaces/default"])
@pytest.mark.parametrize("place", ["member/wal/0.wal", "member/snap/db"])
def test_an_etcd_to_which_an_api_server_has_written_is_protected(box, place, mark):
    attempt(box)
    (Path(box.layout.etcd_data) / place).parent.mkdir(exist_ok=True)
    (Path(box.layout.etcd_data) / place).write_bytes(b"\0" * 1000 + mark)
    stays(box)


def test_an_etcd_whose_data_cannot_be_read_is_protected(box, monkeypatch):
    attempt(box)
    write(box.layout.etcd_data / "member/wal/0.wal", "x" * 70_000)
    monkeypatch.setattr("kubewright.host.filesystem.files.READ_LIMIT", 65_536)
    stays(box)


@pytest.mark.parametrize("directory", [None, "/elsewhere"])
def test_a_kubelet_joined_by_another_tool_after_a_killed_run_is_protected(box, directory):
    """As after `kubeadm reset` and `kubeadm join`, which do not know our record. A kubelet may have another --cert-dir."""
    attempt(box)
    current = box.layout.kubelet_client_current
    place = f"{directory}/{current.name}" if directory else current
    write(box.layout.kubeconfig("kubelet"), f"users: [{{user: {{client-certificate: {place}}}}}]")
    stays(box)


@pytest.mark.parametrize(("program", "protected"), [("kube-apiserver", True), ("nginx", False), (None, False)])
def test_a_running_api_server_is_protected_regardless_of_who_started_it(box, monkeypatch, program, protected):
    """As after `kubeadm init` with an external etcd."""
    made = CHANGES["external etcd"]
    attempt(box, **made)
    owner = PortOwner(user=0, pid=1, program=program) if program else None
    asked_for = []
    monkeypatch.setattr(RealNetwork, "owner_of_port", lambda _, *place: asked_for.append(place) or owner)
    if protected:
        stays(box)
    else:
        box.init(given(box, **OTHER))
    assert asked_for[0] == ("10.98.0.11", 6443)


def test_foreign_mounts_below_the_directory_of_the_kubelet_stay(box, monkeypatch):
    (Path(box.layout.kubelet) / "plugins").mkdir(parents=True)
    attempt(box)
    mounts, undone = [box.layout.kubelet / "plugins/theirs", box.layout.kubelet / "pods/1/a", box.layout.kubelet / "pods/1/a/b"], []
    monkeypatch.setattr(RealHost, "mounts", lambda *_: mounts)
    monkeypatch.setattr(
        RealHost, "unmount", lambda _, path, **__: undone.append(path) or Change(target=f"mount {path}", action=Action.DELETE)
    )
    box.init(given(box, **OTHER))
    assert undone == [mounts[2], mounts[1]]
    assert (Path(box.layout.kubelet) / "plugins").exists()


def test_a_run_to_which_an_api_server_has_answered_is_protected(box, monkeypatch):
    """Even with an external etcd, so that nothing on the machine shows it."""
    made = CHANGES["external etcd"]
    cluster = stand_in_machine(box.whole(), client=lambda *_: box.kube)
    monkeypatch.setattr(type(box), "whole", lambda *_, **__: cluster)
    request = given(box, **made, skip=ENDS.replace("upload-config, ", ""))
    for body in stand_ins.objects(box.call(request).configuration):
        box.kube._stand_ins[("", "nodes", None, body["metadata"]["name"])] = body
    with pytest.raises(HostError):
        real(box, request, fails="upload-config/kubelet")
    assert machine_record.load(box.machine(box.layout)).established
    stays(box)


def real(box, request, *, fails):
    return run(failing(init.INIT, fails, HostError("no")), request, box.whole(), reporter=box.reporter)


def test_a_record_of_an_earlier_version_is_protected(box):
    attempt(box)
    host = box.machine(box.layout)
    machine_record.save(host, replace(machine_record.load(host), free=None, directories=()))
    stays(box)


def test_a_finished_machine_is_protected(box):
    box.init(given(box))
    stays(box)


# -- join


def _refused_key(box):
    with pytest.raises(CertificateError):
        box.join(**{**PLANE, "certificate_key": "cd" * 32})


def _pending(box):
    box.cluster.signs = False
    with pytest.raises(WaitTimeout):
        box.join(fails="kubelet-wait-bootstrap", error=WaitTimeout("node-csr-x is Pending"), node_name="first")
    box.cluster.signs = True


def _failed_plane(box):
    with pytest.raises(WaitTimeout):
        box.join(fails="check-etcd", error=WaitTimeout("no quorum"), **PLANE)


def _wrong_token(box):
    known, box.cluster.token = box.cluster.token, "none"
    with pytest.raises(Unauthorized):
        box.join(node_name="first")
    box.cluster.token = known


def _failed_plane_as_another(box):
    with pytest.raises(WaitTimeout):
        box.join(fails="check-etcd", error=WaitTimeout("no quorum"), node_name="other", **PLANE)


REFUSED = {
    "join, a token that is not known": _wrong_token,
    "join, a certificate that nobody signs": _pending,
    "join --control-plane, a wrong certificate key": _refused_key,
    "join --control-plane, etcd without quorum": _failed_plane,
    "init, an API server that does not start": attempt,
}
JOINS = {
    "join as another node": lambda box: box.join(**WORKER),
    "join --control-plane as another node": _failed_plane_as_another,
}


@pytest.mark.parametrize("after", JOINS)
@pytest.mark.parametrize("refused", REFUSED)
def test_a_join_after_a_refusal_gives_the_result_of_a_fresh_machine(box, fresh, refused, after, matrix):
    with matrix("other configurations after join").cell(refused, after):
        REFUSED[refused](box)
        JOINS[after](box)
        assert state(box.root, box.layout) == fresh(joins=after)


@pytest.mark.parametrize("refused", [name for name in REFUSED if name.startswith("join")])
def test_after_a_refused_join_the_machine_may_become_a_first_control_plane(box, fresh, refused, matrix):
    with matrix("other configurations after join").cell(refused, "init"):
        REFUSED[refused](box)
        box.init(given(box, **OTHER))
        assert seen(box, **OTHER) == fresh("other names")


def test_a_node_is_protected_even_if_its_certificate_came_late(box):
    _pending(box)
    write(box.layout.kubeconfig("kubelet"), "signed at last")
    stays(box)
    with pytest.raises(ConfigurationChanged):
        box.join(**WORKER)
