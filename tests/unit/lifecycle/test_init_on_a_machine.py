"""The phases that write real files: refusals, modes, repeated runs, and killed runs."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath

import pytest
from init_kit import FAST, Box, asked, names

import kubewright
from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.base.change import Action, Change
from kubewright.base.errors import CertificateMismatch, CheckFailed, ConfigurationChanged, HostError, Locked, UsageError
from kubewright.base.events import Checked, Warned
from kubewright.base.records import replace
from kubewright.host.filesystem.files import Files
from kubewright.host.locks import Lock
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.machine import LOCK
from kubewright.pki import certificates
from kubewright.preflight import components, lists
from kubewright.preflight.checks import Check

FILE_PHASES = ("certs", "kubeconfig", "etcd/local", "control-plane")


def everything(box):
    return [change for phase in FILE_PHASES for change in box.act(asked(only=(phase,)))]


def test_show_join_command_alone_fails(box):
    with pytest.raises(UsageError, match="unresolved dependencies"):
        box.act(asked(only=("show-join-command",)))


KUBELET_FILES = ["config.yaml", "instance-config.yaml", "kubeadm-flags.env"]


def test_without_a_service_manager_the_files_of_the_kubelet_are_written_and_it_is_not_started(box):
    box.services.known = False
    box.act(asked(only=("kubelet-start",)))
    assert sorted(path.name for path in Path(box.layout.kubelet).iterdir()) == KUBELET_FILES
    assert box.lines("kubelet-start")[-1] == "No service manager that knows the kubelet was found: start it manually"


def test_a_kubelet_that_cannot_be_restarted_is_reported(box):
    def fail(name):
        raise HostError(f"systemd cannot restart the service {name}", detail="it is masked")

    box.services.restart = box.services.start = fail
    box.act(asked(only=("kubelet-start",)))
    assert sorted(path.name for path in Path(box.layout.kubelet).iterdir()) == KUBELET_FILES
    assert box.warnings() == ["systemd cannot restart the service kubelet: it is masked: run `systemctl restart kubelet`"]


SKIPPED = "skipPhases: [preflight, wait-control-plane, upload-config, mark-control-plane, bootstrap-token, kubelet-finalize, addon, show-join-command]\n"
"""Leaves what needs no API server; the hidden phase at the end is skipped by its own name."""
WITHOUT_API = SKIPPED.replace("addon,", "addon, control-plane-check,")


def test_a_whole_run_stores_the_configuration_of_the_machine(box):
    assert box.act(asked(init=WITHOUT_API))
    found = machine_record.load(box.call(asked()).host)
    assert (found.workflow, found.finished) == ("init", True)
    assert box.act(asked(init=WITHOUT_API)) == ()


def test_a_whole_run_leaves_the_directory_of_kubeconfigs_readable_as_kubeadm_does(box):
    box.act(asked(init=WITHOUT_API))
    modes = {name: mode & 0o7777 for name, (mode, _) in box.snapshot().items()}
    assert (modes["kubernetes"], modes["kubernetes/manifests"]) == (0o755, 0o700)


def test_another_configuration_is_refused_before_anything_is_written(box):
    box.act(asked(init=WITHOUT_API))
    before = box.snapshot()
    with pytest.raises(ConfigurationChanged, match="another configuration"):
        box.act(asked(init=WITHOUT_API, cluster="clusterName: other\n"))
    assert box.snapshot() == before


CRIO, CONTAINERD = "unix:///var/run/crio/crio.sock", "unix:///var/run/containerd/containerd.sock"


def test_a_container_runtime_that_does_not_listen_yet_is_no_other_configuration(box):
    """After a reboot, before systemd has started it: /run is empty."""
    box.detected = replace(box.detected, cri_sockets=(CRIO,))
    box.act(asked(init=WITHOUT_API))
    box.detected = replace(box.detected, cri_sockets=())
    assert box.call(asked(init=WITHOUT_API)).configuration.init.node_registration.cri_socket == CRIO
    assert box.act(asked(init=WITHOUT_API)) == ()


def test_another_container_runtime_is_another_configuration(box):
    box.detected = replace(box.detected, cri_sockets=(CRIO,))
    box.act(asked(init=WITHOUT_API))
    box.detected = replace(box.detected, cri_sockets=(CONTAINERD,))
    with pytest.raises(ConfigurationChanged, match="criSocket"):
        box.act(asked(init=WITHOUT_API))


def test_a_missing_runtime_without_a_record_is_containerd(box):
    box.detected = replace(box.detected, cri_sockets=())
    assert box.call(asked()).configuration.init.node_registration.cri_socket == CONTAINERD
    Path(box.layout.machine_record).parent.mkdir(parents=True)
    Path(box.layout.machine_record).write_text("{")
    assert box.call(asked()).configuration.init.node_registration.cri_socket == CONTAINERD


def test_a_single_phase_does_not_change_the_record(box):
    box.act(asked(only=("certs/ca",)))
    assert machine_record.load(box.call(asked()).host) is None


def test_an_unsuitable_machine_is_not_changed(box, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CheckFailed, match="preflight checks failed") as caught:
        box.act(asked())
    assert "IsPrivilegedUser" in caught.value.detail
    assert [name for name in box.snapshot() if not name.startswith(("run", "state"))] == []
    assert machine_record.load(box.call(asked()).host) is None


class Runtime:
    """A container runtime that has etcd's image, and cannot pull those in `lacks`."""

    def __init__(self, *lacks: str) -> None:
        self.lacks = lacks
        self.pulled = []

    def cgroup_driver(self):
        return None

    def sandbox_image(self):
        return "registry.example/pause:1"

    def has_image(self, image):
        return "etcd" in image

    def pull(self, image):
        if any(name in image for name in self.lacks):
            raise HostError(f"the image {image} cannot be pulled", remedy="import it")
        self.pulled.append(image)
        return Change(target=f"image {image}", action=Action.CREATE)


def with_runtime(box, runtime):
    """Let the machine have the runtime."""
    machine = box.machine

    def made(layout):
        host = machine(layout)
        host._runtime = runtime
        return host

    box.machine = made
    return runtime


def test_checks_and_pulls_come_before_any_change(box, monkeypatch):
    runtime = with_runtime(box, Runtime())
    monkeypatch.setattr(lists, "init", lambda *_, resumed: [Check(name="ContainerRuntimeVersion", find=components.runtime_version)])
    changes = box.act(asked(only=("preflight",)))
    assert names(changes) == [f"image {image}" for image in runtime.pulled]
    assert len(runtime.pulled) == 6
    assert not any("etcd" in image for image in runtime.pulled)
    assert [event.check for event in box.reporter.events if isinstance(event, Checked)] == ["ContainerRuntimeVersion"]
    said = [event.text for event in box.reporter.events if isinstance(event, Warned)]
    assert [text.partition(";")[0] for text in said] == ["the container runtime runs pods with the sandbox image registry.example/pause:1"]


@pytest.mark.parametrize("ignored", [("ImagePull",), ("all",)])
@pytest.mark.parametrize("in_file", [True, False])
def test_images_that_cannot_be_pulled_are_a_check_that_can_be_ignored(box, monkeypatch, ignored, in_file):
    runtime = with_runtime(box, Runtime("kube-proxy", "coredns"))
    monkeypatch.setattr(lists, "init", lambda *_, resumed: [])
    with pytest.raises(
        CheckFailed, match=r"\[ERROR ImagePull\]: 2 of 7 images cannot be pulled: .*/kube-proxy:.* cannot be pulled\n.*/coredns"
    ):
        box.act(asked(only=("preflight",)))
    assert len(runtime.pulled) == 4
    assert not Path(box.layout.machine_record).exists()
    assert not [event for event in box.reporter.events if isinstance(event, Checked)]
    line = f"nodeRegistration: {{ignorePreflightErrors: [{ignored[0]}]}}\n" if in_file else ""
    flags = {} if in_file else {"overrides": InitOverrides(ignore_preflight_errors=ignored)}
    changes = box.act(asked(init=line, only=("preflight",), **flags))
    assert len(names(changes)) == 4
    [found] = [event for event in box.reporter.events if isinstance(event, Checked)]
    assert found.check == "ImagePull"
    assert found.text.startswith("2 of 7 images cannot be pulled")


def test_the_file_phases_write_what_kubeadm_writes_with_its_modes(box):
    assert len(everything(box)) == 22
    modes = {name: oct(mode & 0o7777) for name, (mode, _) in box.snapshot().items()}
    assert {name: modes[name] for name in ("kubernetes/pki/ca.key", "kubernetes/pki/ca.crt", "kubernetes/pki/sa.pub")} == {
        "kubernetes/pki/ca.key": "0o600",
        "kubernetes/pki/ca.crt": "0o644",
        "kubernetes/pki/sa.pub": "0o600",
    }
    assert {modes[name] for name in modes if name.endswith(".conf") or "manifests/" in name} == {"0o600"}
    assert {name: modes[name] for name in ("kubernetes/pki", "kubernetes/pki/etcd", "kubernetes/manifests", "etcd")} == {
        "kubernetes/pki": "0o755",
        "kubernetes/pki/etcd": "0o755",
        "kubernetes/manifests": "0o700",
        "etcd": "0o700",
    }
    assert len([name for name in modes if name.startswith("kubernetes/pki") and Path(box.root, name).is_file()]) == 22


def test_a_second_run_writes_nothing(box):
    everything(box)
    before = box.snapshot()
    assert everything(box) == []
    assert box.snapshot() == before


def test_one_phase_of_a_group_writes_one_file(box):
    box.act(asked(only=("certs/ca",)))
    assert names(box.act(asked(only=("certs/apiserver",)))) == ["certificate apiserver"]
    assert sorted(path.name for path in Path(box.layout.pki).iterdir()) == ["apiserver.crt", "apiserver.key", "ca.crt", "ca.key"]


def test_the_phase_all_equals_its_group(box):
    assert len(box.act(asked(only=("certs/all",)))) == 11


def test_kubeconfigs_can_be_written_elsewhere(box, tmp_path):
    box.act(asked(only=("certs/ca",)))
    box.act(asked(only=("kubeconfig/admin",), kubeconfig_directory=str(tmp_path / "other")))
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["admin.conf"]


def test_a_mismatched_certificate_is_reported_and_kept(box):
    box.act(asked(only=("certs",)))
    crt = Path(box.layout.certificate("apiserver"))
    crt.write_bytes(Path(box.layout.certificate("front-proxy-client")).read_bytes())
    before = box.snapshot()
    with pytest.raises(CertificateMismatch, match=r"apiserver\.crt"):
        box.act(asked(only=("certs",)))
    assert box.snapshot() == before


def test_one_kubewright_at_a_time(box):
    Path(box.layout.run).mkdir(parents=True)
    with Lock(box.layout.run / LOCK, doing="init phase"), pytest.raises(Locked, match="another kubewright"):
        box.act(asked(only=("certs/ca",)))
    assert box.act(asked(only=("certs/ca",)))


class Killed(BaseException):
    """Simulates kill -9."""


class DyingFiles(Files):
    """Files that fail before one of their writes."""

    def __init__(self, writes: int) -> None:
        super().__init__(durable=False)
        self.left = writes

    def write(self, desired, /):
        if self.left == 0:
            raise Killed
        self.left -= 1
        super().write(desired)


def dying(box, writes):
    return functools.partial(box.machine, files=DyingFiles(writes))


@pytest.mark.parametrize("writes", [0, 1, 3, 10, 22, 26, 30])
def test_a_run_killed_between_two_writes_is_completed_by_the_next(tmp_path, writes):
    box, undisturbed = Box(tmp_path / "machine"), Box(tmp_path / "other")
    healthy, box.machine = box.machine, dying(box, writes)
    with pytest.raises(Killed):
        everything(box)
    box.machine = healthy
    everything(box)
    everything(undisturbed)
    assert {name: mode for name, (mode, _) in box.snapshot().items()} == {name: mode for name, (mode, _) in undisturbed.snapshot().items()}
    assert everything(box) == []
    authority = certificates.parse(Path(box.layout.certificate("ca")).read_bytes())[0]
    assert certificates.parse(Path(box.layout.certificate("apiserver")).read_bytes())[0].issued_by(authority)


def run_certs(directory, config):
    environment = {**os.environ, "PYTHONPATH": str(Path(kubewright.__file__).parents[1]), "XDG_STATE_HOME": str(directory)}
    argv = [sys.executable, "-m", "kubewright", "init", "phase", "certs", "all", "--config", str(config)]
    return subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("seen", ["ca.key", "etcd/server.key"])
def test_a_killed_command_is_completed_by_the_same_command(tmp_path, seen):
    config, pki = tmp_path / "kubeadm.yaml", tmp_path / "pki"
    config.write_text(
        f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.2\n{FAST}certificatesDir: {pki}\n"
        "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 10.98.0.11}\n"
    )
    first = run_certs(tmp_path, config)
    while first.poll() is None and not (pki / seen).exists():
        time.sleep(0.0005)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second = run_certs(tmp_path, config)
    _, err = second.communicate(timeout=600)
    assert (second.returncode, err) == (0, "")
    assert len([path for path in pki.rglob("*") if path.is_file()]) == 22


def test_an_ordinary_user_gets_the_reason_for_an_unwritable_directory(box, monkeypatch):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    Path(box.root).mkdir(mode=0o500)
    with pytest.raises(HostError, match="not allowed"):
        box.act(asked(only=("certs/ca",)))


def test_paths_with_blanks_work(tmp_path):
    box = Box(tmp_path / "a machine")
    box.act(asked(only=("certs/ca",)))
    assert PurePosixPath(box.layout.certificate("ca")).is_absolute()
    assert Path(box.layout.certificate("ca")).exists()
