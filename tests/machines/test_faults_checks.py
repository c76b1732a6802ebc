"""Faults that are found before `init` changes anything: one machine, one fault after the other, and no fault leaves anything behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import kubelet_failures
import pytest
from machine_kit import CONFIG, INIT, SHARED, kubewright, write
from testbed.bed import Bed

from kubewright.lifecycle.diagnosis import remedies
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

MADE = ("/etc/kubernetes/pki", "/etc/kubernetes/manifests", "/etc/kubernetes/admin.conf", "/var/lib/etcd", "/var/lib/kubelet/config.yaml")


@pytest.fixture(scope="module")
def machine(parts: Parts) -> Iterator[Machine]:
    """A machine on which `init` never gets far."""
    with Bed("one", bed="faults-checks", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, INIT.format(address=one.address))
        yield one


def init(machine: Machine, *arguments: str) -> Ended:
    """Run init, which must fail properly: with the words of kubeadm for checks or a hint, no traceback, and without half-written files."""
    ended = kubewright(machine, "init", "--config", CONFIG, *arguments, check=False)
    assert ended.code == 1, ended.err + ended.out
    assert "preflight checks failed" in ended.err or "hint: " in ended.err
    assert "Traceback" not in ended.err + ended.out
    assert "this is a bug" not in ended.err
    assert machine.run("sh", "-c", f"ls -d {' '.join(MADE)}", check=False).out == ""
    return ended


@contextmanager
def broken(machine: Machine, how: str, mend: str) -> Iterator[None]:
    """Break something on a machine, and repair it afterwards."""
    machine.run("sh", "-c", how)
    try:
        yield
    finally:
        machine.run("sh", "-c", mend)


@contextmanager
def configured(machine: Machine, old: str, new: str) -> Iterator[None]:
    text = INIT.format(address=machine.address)
    assert text.count(old) == 1
    write(machine, CONFIG, text.replace(old, new))
    try:
        yield
    finally:
        write(machine, CONFIG, text)


@pytest.fixture(scope="class")
def standalone(machine: Machine) -> Iterator[Machine]:
    with kubelet_failures.standalone(machine):
        yield machine


class TestKubeletThatFails:
    @pytest.mark.parametrize("text", kubelet_failures.FAILING)
    def test_every_known_kubelet_error_has_a_hint(self, standalone: Machine, text: str) -> None:
        found = kubelet_failures.fail(standalone, text)
        assert found["failed"]
        assert found["remedy"] == dict(remedies.KUBELET)[text], found["journal"]

    def test_output_that_is_read_after_the_kubelet_has_ended_is_found(self, standalone: Machine) -> None:
        text = "failed to parse kubelet flag"
        found = kubelet_failures.fail(standalone, text, start=kubelet_failures.LATE_JOURNAL)
        assert found["remedy"] == dict(remedies.KUBELET)[text], found["journal"]

    def test_a_failure_without_a_row_has_the_general_hint(self, standalone: Machine) -> None:
        found = kubelet_failures.fail(standalone, kubelet_failures.UNKNOWN)
        assert found["failed"]
        assert kubelet_failures.UNKNOWN in str(found["said"])
        assert found["remedy"] == remedies.KUBELET_OTHERWISE

    def test_every_hint_is_tested_with_a_failure(self) -> None:
        assert kubelet_failures.FAILING.keys() == dict(remedies.KUBELET).keys()


def test_a_port_in_use_is_reported_with_the_process_that_uses_it(machine: Machine) -> None:
    listen = "import socket, time; s = socket.create_server(('0.0.0.0', 6443)); print('listens', flush=True); time.sleep(7200)"
    holder = machine.start("/usr/bin/python3", "-c", listen, stdout=-1)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"listens\n"
        assert "[ERROR Port-6443]: Port 6443 is in use by python3 (pid " in init(machine).err
    finally:
        machine.run("pkill", "-KILL", "-f", "create_server")
        holder.stdout.close()
        holder.wait(600)


def test_a_stopped_runtime_is_reported(machine: Machine) -> None:
    with broken(machine, "systemctl stop containerd", "systemctl start containerd"):
        said = init(machine).err
    assert "[ERROR CRI]: no container runtime answers at unix:///var/run/containerd/containerd.sock" in said
    assert "systemctl" in said


def test_a_missing_kubelet_is_reported(machine: Machine) -> None:
    with broken(machine, "mv /usr/bin/kubelet /usr/bin/kubelet.away", "mv /usr/bin/kubelet.away /usr/bin/kubelet"):
        said = init(machine).err
    assert "[ERROR KubeletVersion]: " in said
    assert "install" in said


def test_enabled_swap_is_a_warning_that_can_be_made_an_error(machine: Machine) -> None:
    lines = "Filename Type Size Used Priority\\n/dev/sda2 partition 1000 0 -2\\n"
    with broken(machine, f"printf '{lines}' > /root/swaps; mount --bind /root/swaps /proc/swaps", "umount /proc/swaps"):
        said = kubewright(machine, "preflight", "init", "--config", CONFIG, check=False)
        assert "Swap" in said.out + said.err
        assert "swap" in (said.out + said.err).lower()


def test_an_invalid_host_name_is_refused(machine: Machine) -> None:
    with configured(machine, "nodeRegistration:\n", "nodeRegistration:\n  name: Not_A_Name\n"):
        said = init(machine).err
    assert "nodeRegistration.name" in said


def test_images_that_cannot_be_pulled_are_reported(machine: Machine) -> None:
    with configured(machine, "kubernetesVersion:", "imageRepository: 127.0.0.1:1/k8s\nkubernetesVersion:"):
        said = init(machine).err
        ignored = kubewright(machine, "init", "phase", "preflight", "--config", CONFIG, "--ignore-preflight-errors", "ImagePull").err
    assert "[ERROR ImagePull]: 7 of 7 images cannot be pulled" in said
    assert "the image 127.0.0.1:1/k8s/" in said
    assert "[WARNING ImagePull]: 7 of 7 images cannot be pulled" in ignored


def test_a_read_only_kubernetes_directory_is_reported(machine: Machine) -> None:
    with broken(machine, "mkdir -p /etc/kubernetes && mount -t tmpfs -o ro none /etc/kubernetes", "umount /etc/kubernetes"):
        said = init(machine).err
    assert "/etc/kubernetes/pki" in said
    assert "read-only" in said


def test_a_full_disk_is_reported(machine: Machine) -> None:
    with broken(machine, "mkdir -p /etc/kubernetes && mount -t tmpfs -o size=8k none /etc/kubernetes", "umount /etc/kubernetes"):
        ended = kubewright(machine, "init", "--config", CONFIG, check=False)
        assert ended.code == 1
        assert "the disk is full" in ended.err
        assert "df -h" in ended.err
        assert "Traceback" not in ended.err


def test_the_same_command_works_after_all_faults_are_repaired(machine: Machine) -> None:
    kubewright(machine, "init", "--config", CONFIG)
    assert kubewright(machine, "init", "--plan", "--config", CONFIG).out == ""
