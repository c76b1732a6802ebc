"""The phases that write files for real: refusals, modes, re-runs, and runs that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath

import pytest
from init_kit import FAST, Box, asked, names

import kubewright
from kubewright.base.errors import CertificateMismatch, HostError, Locked, UsageError
from kubewright.host.files import Files
from kubewright.host.locks import Lock
from kubewright.lifecycle.init import acting
from kubewright.lifecycle.init.phases import INIT
from kubewright.lifecycle.init.services import SeenServices
from kubewright.pki import bundles

FILE_PHASES = ("certs", "kubeconfig", "etcd/local", "control-plane")
OTHERS = [node.name for node in INIT.nodes if node.name.partition("/")[0] not in acting.FILE_PHASES]


def everything(box):
    return [change for phase in FILE_PHASES for change in box.act(asked(only=(phase,)))]


def test_init_as_a_whole_says_that_it_comes_later(box):
    with pytest.raises(HostError, match="init cannot change this machine yet") as caught:
        box.act(asked())
    assert all(word in caught.value.remedy for word in ("--plan", "--dry-run", "kubewright up"))
    assert box.snapshot() == {}


@pytest.mark.parametrize("phase", [name for name in OTHERS if name != "show-join-command"])
def test_a_phase_that_needs_more_than_files_says_that_it_comes_later(box, phase):
    with pytest.raises(HostError, match="yet") as caught:
        box.act(asked(only=(phase,)))
    assert phase.partition("/")[0] in caught.value.what
    assert box.snapshot() == {}


def test_the_join_command_alone_lacks_what_it_shows(box):
    with pytest.raises(UsageError, match="unresolved dependencies"):
        box.act(asked(only=("show-join-command",)))


KUBELET_FILES = ["config.yaml", "instance-config.yaml", "kubeadm-flags.env"]


def test_without_a_service_manager_the_kubelets_files_are_written_and_its_start_is_left_to_people(box):
    box.services.known = False
    box.act(asked(only=("kubelet-start",)))
    assert sorted(path.name for path in Path(box.layout.kubelet).iterdir()) == KUBELET_FILES
    assert box.lines("kubelet-start")[-1] == "No service manager that knows the kubelet was found: start it by hand"


def test_a_kubelet_that_cannot_be_restarted_is_told(box):
    seen = SeenServices(Files())
    box.services.restart = box.services.start = seen.restart
    box.act(asked(only=("kubelet-start",)))
    assert sorted(path.name for path in Path(box.layout.kubelet).iterdir()) == KUBELET_FILES
    assert box.warnings() == ["service kubelet cannot be changed by this version of kubewright: run `systemctl restart kubelet`"]


def test_preflight_says_that_its_checks_come_later(box):
    with pytest.raises(HostError, match="preflight cannot check this machine yet"):
        box.act(asked(only=("preflight",)))


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


def test_a_second_time_nothing_is_written(box):
    everything(box)
    before = box.snapshot()
    assert everything(box) == []
    assert box.snapshot() == before


def test_one_leaf_of_a_group_is_one_file(box):
    box.act(asked(only=("certs/ca",)))
    assert names(box.act(asked(only=("certs/apiserver",)))) == ["certificate apiserver"]
    assert sorted(path.name for path in Path(box.layout.pki).iterdir()) == ["apiserver.crt", "apiserver.key", "ca.crt", "ca.key"]


def test_all_of_a_group_is_the_group(box):
    assert len(box.act(asked(only=("certs/all",)))) == 11


def test_kubeconfigs_may_go_elsewhere(box, tmp_path):
    box.act(asked(only=("certs/ca",)))
    box.act(asked(only=("kubeconfig/admin",), kubeconfig_directory=str(tmp_path / "other")))
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["admin.conf"]


def test_a_certificate_that_does_not_fit_is_named_and_kept(box):
    box.act(asked(only=("certs",)))
    crt = Path(box.layout.certificate("apiserver"))
    crt.write_bytes(Path(box.layout.certificate("front-proxy-client")).read_bytes())
    before = box.snapshot()
    with pytest.raises(CertificateMismatch, match=r"apiserver\.crt"):
        box.act(asked(only=("certs",)))
    assert box.snapshot() == before


def test_one_kubewright_at_a_time(box):
    Path(box.layout.run).mkdir(parents=True)
    with Lock(box.layout.run / "init.lock", doing="init phase"), pytest.raises(Locked, match="another kubewright"):
        box.act(asked(only=("certs/ca",)))
    assert box.act(asked(only=("certs/ca",)))


class Killed(BaseException):
    """What kill -9 is to a test."""


class DyingFiles(Files):
    """Files that die before one of their writes."""

    def __init__(self, writes: int) -> None:
        super().__init__(durable=False)
        self.left = writes

    def write(self, desired, /):
        if self.left == 0:
            raise Killed
        self.left -= 1
        super().write(desired)


def dying(box, writes):
    healthy = box.machine

    def machine(layout):
        host = healthy(layout)
        host.files = files
        return host

    files = DyingFiles(writes)
    return machine


@pytest.mark.parametrize("writes", [0, 1, 3, 10, 22, 26, 30])
def test_a_run_that_was_killed_between_two_writes_is_finished_by_the_next(tmp_path, writes):
    box, undisturbed = Box(tmp_path / "machine"), Box(tmp_path / "other")
    healthy, box.machine = box.machine, dying(box, writes)
    with pytest.raises(Killed):
        everything(box)
    box.machine = healthy
    everything(box)
    everything(undisturbed)
    assert {name: mode for name, (mode, _) in box.snapshot().items()} == {name: mode for name, (mode, _) in undisturbed.snapshot().items()}
    assert everything(box) == []
    authority = bundles.parse(Path(box.layout.certificate("ca")).read_bytes())[0]
    assert bundles.parse(Path(box.layout.certificate("apiserver")).read_bytes())[0].issued_by(authority)


def run_certs(directory, config):
    environment = {**os.environ, "PYTHONPATH": str(Path(kubewright.__file__).parents[1]), "XDG_STATE_HOME": str(directory)}
    argv = [sys.executable, "-m", "kubewright", "init", "phase", "certs", "all", "--config", str(config)]
    return subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("seen", ["ca.key", "etcd/server.key"])
def test_a_command_that_was_killed_is_finished_by_the_same_command(tmp_path, seen):
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
    _, err = second.communicate(timeout=60)
    assert (second.returncode, err) == (0, "")
    assert len([path for path in pki.rglob("*") if path.is_file()]) == 22


def test_an_ordinary_user_is_told_why_a_directory_cannot_be_written(box, monkeypatch):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    Path(box.root).mkdir(mode=0o500)
    with pytest.raises(HostError, match="not allowed"):
        box.act(asked(only=("certs/ca",)))


def test_paths_with_blanks_are_fine(tmp_path):
    box = Box(tmp_path / "a machine")
    box.act(asked(only=("certs/ca",)))
    assert PurePosixPath(box.layout.certificate("ca")).is_absolute()
    assert Path(box.layout.certificate("ca")).exists()
