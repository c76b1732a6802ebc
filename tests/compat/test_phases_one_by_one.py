"""The phases of an operation, run one by one, give the same result as the whole command: with kubewright and with real kubeadm.

Phases that need a kubelet or etcd are left out of both here; `tests/machines/test_join_worker.py` runs those of join
on whole machines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import arena_api
import pytest
from arena import Answer, Arena, Request, arena
from certs_comparison import find_kubeadm
from machine_files import Description, between, describe

from matrices import Matrix

PLACE = "/srv/kubeadm.yaml"
CONFIG = f"--config={PLACE}"
CLUSTER = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: 10.98.0.12:6444
encryptionAlgorithm: ECDSA-P256
networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/12, dnsDomain: cluster.local}
"""
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
rotateCertificates: true
"""
PROXY = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
REGISTRATION = """\
nodeRegistration:
  name: node2
  criSocket: unix:///run/containerd/containerd.sock
  kubeletExtraArgs: [{name: v, value: "3"}]
"""
INIT = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
{REGISTRATION}---
{CLUSTER}---
{KUBELET}"""
WORKER = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {{bootstrapToken: {{apiServerEndpoint: "10.98.0.12:6444", token: {token}, caCertHashes: ["{pin}"]}}, tlsBootstrapToken: {token}}}
"""
PLANE = "controlPlane: {{certificateKey: {key}, localAPIEndpoint: {{advertiseAddress: 10.98.0.12}}}}\n"
OURS = "/var/lib/kubewright"


@functools.cache
def cluster():
    return arena_api.cluster({"kubeadm-config": CLUSTER, "kubelet-config": KUBELET, "kube-proxy": PROXY})


@dataclass(frozen=True)
class Row:
    """An operation: its flags, its phases with theirs, those that are left out here (`own`: kubeadm does not know them), and the machine's files."""

    command: str
    phases: tuple[str, ...]
    files: Mapping[str, str]
    flag: str = CONFIG
    left_out: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def whole(self, *, ours: bool) -> Request:
        """The whole command."""
        skip = [f"--skip-phases={one}" for one in (*self.left_out, *(self.own if ours else ()))]
        return self._request([[self.command, self.flag, *skip]])

    def single(self) -> Request:
        """Each phase as a command."""
        return self._request([[self.command, "phase", *phase.split()] for phase in self.phases])

    def _request(self, commands: Sequence[Sequence[str]]) -> Request:
        return Request(commands, self.files, cluster=cluster()[0] if self.command == "join" else {})


def with_config(*phases: str) -> tuple[str, ...]:
    return tuple(f"{phase} {CONFIG}" for phase in phases)


def joining(text: str) -> dict[str, str]:
    """The files of a machine that is to join. The kubelet's package creates the directory of static pods, and so do we on workers."""
    known = {"token": arena_api.TOKEN, "pin": cluster()[1], "key": arena_api.KEY}
    return {PLACE: text.format(**known) + REGISTRATION, "/etc/kubernetes/manifests/.keep": ""}


JOINED = {
    **{f"/etc/kubernetes/{name}.conf": "" for name in ("admin", "kubelet", "controller-manager", "scheduler")},
    **{f"/etc/kubernetes/pki/{name}": "" for name in ("ca.crt", "ca.key", "etcd/server.crt", "sa.pub")},
    "/etc/kubernetes/manifests/kube-apiserver.yaml": "",
    "/etc/kubernetes/tmp/backup/a": "",
    "/etc/cni/net.d/a.conflist": "",
    "/var/lib/kubelet/config.yaml": "",
    "/var/lib/kubelet/pods/a/b": "",
}
ROWS: Mapping[str, Callable[[], Row]] = {
    "init": lambda: Row(
        "init",
        with_config("certs all", "kubeconfig all", "etcd local", "control-plane all", "kubelet-start"),
        {PLACE: INIT},
        left_out=(
            *("preflight", "wait-control-plane", "upload-config", "upload-certs", "mark-control-plane", "bootstrap-token"),
            *("kubelet-finalize", "addon", "show-join-command"),
        ),
        own=("control-plane-check",),
    ),
    "join a worker": lambda: Row(
        "join",
        with_config("kubelet-start"),
        joining(WORKER),
        left_out=("preflight", "kubelet-wait-bootstrap"),
    ),
    "join a control plane": lambda: Row(
        "join",
        with_config(
            *(f"control-plane-prepare {name}" for name in ("download-certs", "certs", "kubeconfig", "control-plane")), "kubelet-start"
        ),
        joining(WORKER + PLANE),
        left_out=("preflight", "check-etcd", "etcd-join", "kubelet-wait-bootstrap", "control-plane-join", "wait-control-plane"),
    ),
    "reset": lambda: Row("reset", ("preflight --force", "remove-etcd-member", "cleanup-node"), JOINED, flag="--force"),
}


@pytest.fixture(scope="module")
def machines() -> Iterator[Arena]:
    with arena(find_kubeadm()) as both:
        yield both


def made(answer: Answer) -> Description:
    """Everything except our own record."""
    assert answer.code == 0, answer.err
    return describe({path: file for path, file in answer.files.items() if not path.startswith(OURS)})


@pytest.mark.parametrize("name", ROWS)
def test_single_phases_give_the_result_of_the_whole_command(name: str, machines: Arena, matrix: Callable[[str], Matrix]) -> None:
    row, told = ROWS[name](), matrix("files beside those of kubeadm's whole command")
    oracle, whole = machines.both(row.whole(ours=False), row.whole(ours=True))
    wanted = made(oracle)
    for column, answer in zip(("the whole command", "kubeadm's phases", "phases"), (whole, *machines.both(row.single())), strict=True):
        with told.cell(name, column):
            found = made(answer)
            paths = wanted.differences(found, within=between(oracle, answer))
            assert {path: (wanted.files.get(path), found.files.get(path)) for path in paths} == {}
