"""Faults while a control plane starts: the wait ends early, the reason is shown, and the same command works after a repair.

The failing runs mostly wait, so those of all machines run in parallel.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from machine_kit import CONFIG, ENVIRONMENT, INIT, SHARED, argv, eventually, kubewright, ready, write
from state_kit import files, require_same
from testbed.bed import Bed

from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts
from kubewright.manifests.kubelet import DROP_IN, UNIT, UNIT_FILES, UNIT_HEADER

ETCD_IMAGE = "registry.k8s.io/etcd:3.6.8-0"
NO_UNIT = f"systemctl disable -q --now kubelet; rm -rf {UNIT} {DROP_IN.parent}; systemctl daemon-reload"
SWAP = r"printf 'Filename Type Size Used Priority\n/dev/sda2 partition 1000 0 -2\n' > /root/swaps; mount --bind /root/swaps /proc/swaps"
NO_SPACE = "mkdir -m 0700 -p /var/lib/etcd && mount -t tmpfs -o size=64k,mode=700 none /var/lib/etcd"
NO_IMAGE = f"ctr -n k8s.io images export /root/etcd.tar {ETCD_IMAGE} && ctr -n k8s.io images rm {ETCD_IMAGE}"

PAUSED_KUBELET = "until pkill -STOP -f '[k]ubelet --bootstrap-kubeconfig='; do sleep 0.01; done"
"""Waits for the kubelet, not for calls of its program that ask for the version, and stops its process at once."""

BROKEN: Mapping[str, str] = {"flag": "true", "api": "true", "swap": f"{NO_UNIT}; {SWAP}", "space": NO_SPACE, "image": NO_IMAGE}
"""A machine and what is broken on it."""
MENDED: Mapping[str, str] = {
    "swap": "umount /proc/swaps",
    "space": "mount -o remount,size=1g /var/lib/etcd",
    "image": f"ctr -n k8s.io images import /root/etcd.tar && ctr -n k8s.io images ls -q | grep -qx {ETCD_IMAGE}",
}
WRITTEN: Mapping[str, tuple[str, str]] = {
    "flag": ("nodeRegistration:\n", "nodeRegistration:\n  kubeletExtraArgs: [{name: nonsense, value: x}]\n"),
    "image": ("nodeRegistration:\n", "nodeRegistration:\n  imagePullPolicy: Never\n"),
    "api": ("kind: ClusterConfiguration\n", "kind: ClusterConfiguration\napiServer: {extraArgs: [{name: nonsense, value: x}]}\n"),
}
"""Additions to their configurations."""


@pytest.fixture(scope="module")
def bed(parts: Parts) -> Iterator[Bed]:
    with Bed(*BROKEN, "other", bed="faults-start", parts=parts, shared=SHARED) as made:
        for machine in made.machines.values():
            text = INIT.format(address=machine.address).replace("cluster.test", machine.address)
            write(machine, CONFIG, text.replace(*WRITTEN.get(machine.name, ("", ""))))
        yield made


@pytest.fixture(scope="module")
def failed(bed: Bed) -> Mapping[str, Ended]:
    """How init ended on each of the broken machines."""

    def run(name: str) -> Ended:
        bed[name].run("sh", "-c", BROKEN[name])
        return kubewright(bed[name], "init", "--config", CONFIG, check=False)

    with ThreadPoolExecutor(len(BROKEN)) as threads:
        return dict(zip(BROKEN, threads.map(run, BROKEN), strict=True))


def complaint(ended: Ended) -> str:
    """Return the output of a failed run; never a traceback."""
    assert ended.code == 1, ended.err + ended.out
    assert "Traceback" not in ended.err + ended.out
    assert "this is a bug" not in ended.err
    assert "hint: " in ended.err
    return ended.err


def finished(machine: Machine) -> None:
    """The same command works, and leaves no changes to make."""
    if machine.name in MENDED:
        machine.run("sh", "-c", MENDED[machine.name])
    kubewright(machine, "init", "--config", CONFIG)
    assert kubewright(machine, "init", "--plan", "--config", CONFIG).out == ""
    machine.cut_power()  # the others need the processor


def test_a_kubelet_with_a_bad_argument_is_reported_with_its_own_message(failed: Mapping[str, Ended]) -> None:
    said = complaint(failed["flag"])
    assert "error: error execution phase wait-control-plane: the kubelet does not stay up" in said
    assert "failed to parse kubelet flag: unknown flag: --nonsense" in said
    assert "nodeRegistration.kubeletExtraArgs has an argument that the kubelet does not accept" in said
    assert "kubewright reset" in said


def test_a_corrected_configuration_works_at_once_after_a_kubelet_did_not_start(bed: Bed, failed: Mapping[str, Ended]) -> None:
    machine = bed["flag"]
    write(machine, CONFIG, machine.run("cat", CONFIG).out.replace("nonsense, value: x", "v, value: '2'"))
    finished(machine)


def test_another_configuration_after_a_failed_api_server_gives_the_result_of_a_fresh_machine(bed: Bed, failed: Mapping[str, Ended]) -> None:
    said, machine = complaint(failed["api"]), bed["api"]
    assert "error: error execution phase wait-control-plane: kube-apiserver does not stay up" in said
    assert "unknown flag: --nonsense" in said
    text = machine.run("cat", CONFIG).out.replace("extraArgs: [{name: nonsense, value: x}]", "certSANs: [other.test]")
    write(machine, CONFIG, text.replace("10.244.0.0/16", "10.245.0.0/16"))
    kubewright(machine, "init", "--config", CONFIG)
    found = files(machine)
    kubewright(machine, "reset", "--force")
    kubewright(machine, "init", "--config", CONFIG)
    require_same(files(machine), found)
    assert "other.test" in str(found["/etc/kubernetes/pki/apiserver.crt"])
    machine.cut_power()


def test_swap_keeps_a_kubelet_from_starting(bed: Bed, failed: Mapping[str, Ended]) -> None:
    said = complaint(failed["swap"])
    assert "[WARNING Swap]" in said
    assert "error: error execution phase wait-control-plane: the kubelet does not stay up" in said
    assert "running with swap on is not supported" in said
    assert "hint: switch swap off (`swapoff -a`" in said


def test_a_kubelet_unit_is_installed_if_no_package_has_installed_one(bed: Bed, failed: Mapping[str, Ended]) -> None:
    machine = bed["swap"]
    assert failed["swap"].code == 1
    assert [machine.run("head", "-n1", str(path)).out.strip() for path in UNIT_FILES] == [UNIT_HEADER, UNIT_HEADER]
    assert machine.run("systemctl", "is-enabled", "kubelet").out.strip() == "enabled"
    finished(machine)


def test_an_etcd_without_space_is_reported_with_its_own_message(bed: Bed, failed: Mapping[str, Ended]) -> None:
    said = complaint(failed["space"])
    assert "error: error execution phase wait-control-plane: etcd does not stay up" in said
    assert "no space left on device" in said
    assert "hint: free some space (`df -h`" in said
    finished(bed["space"])


def test_a_missing_image_is_reported(bed: Bed, failed: Mapping[str, Ended]) -> None:
    said = complaint(failed["image"])
    assert (
        f"error: error execution phase wait-control-plane: the image {ETCD_IMAGE} of etcd is not on this machine, and cannot be pulled"
        in said
    )
    assert "hint: import it into the container runtime" in said
    finished(bed["image"])


def test_a_concurrent_run_is_refused_and_the_same_command_finishes_an_interrupted_one(bed: Bed, failed: Mapping[str, Ended]) -> None:
    machine = bed["other"]
    machine.run("systemctl", "stop", "kubelet")  # as it has no configuration, it is started again and again
    pausing = machine.start("sh", "-c", PAUSED_KUBELET)  # before it starts any container, so that the wait does not end
    first = machine.start(*argv("init", "--config", CONFIG), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert first.stdout is not None
    assert any(b"[wait-control-plane]" in line for line in iter(first.stdout.readline, b""))
    assert pausing.wait(600) == 0
    second = kubewright(machine, "init", "--config", CONFIG, check=False)
    machine.run("pkill", "-INT", "-f", "kubewright init")
    _, said = first.communicate(timeout=900)
    machine.run("pkill", "-CONT", "-x", "kubelet")
    assert second.code == 1
    assert "another kubewright is running" in second.err
    assert b"error: interrupted in phase wait-control-plane" in said
    assert b"hint: run the same command again" in said
    assert first.returncode in {130, -signal.SIGINT}
    kubewright(machine, "init", "--config", CONFIG)
    assert kubewright(machine, "init", "--plan", "--config", CONFIG).out == ""
    eventually(lambda: ready(machine, "daemonset", "kube-proxy"), "kube-proxy")
