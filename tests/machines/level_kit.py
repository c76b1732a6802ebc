"""What the tests of upgrades on machines share: the second patch level, what runs, and what must be alike."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from machine_kit import INIT, administer, eventually, kubectl, kubewright, write
from state_kit import State, files, objects

from kubewright.base import yaml
from kubewright.base.level import KUBERNETES
from kubewright.machines.machine import Ended, Machine

NEXT = "v1.36.4"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PATCHES = "/opt/patches"
FAILURES_MATRIX = "upgrade, failures"
"""The matrix of upgrades that fail."""
IGNORED = "--ignore-preflight-errors=SystemVerification,CreateJob"
"""A Job that takes more than a minute says only that the machine is busy."""
LEAVES = ("apiserver", "apiserver-kubelet-client", "front-proxy-client", "apiserver-etcd-client", "etcd/server", "etcd/peer")
RENEWED = {f"pki/{base}.crt" for base in (*LEAVES, "etcd/healthcheck-client")} | {f"pki/{base}.key" for base in LEAVES[:4]}
"""What has another content once the API server has been replaced, and stays where a later component fails."""
ETCD_LEAVES = {f"pki/etcd/{base}.{end}" for base in ("server", "peer", "healthcheck-client") for end in ("crt", "key")}
WITH_OTHERS = RENEWED | {"controller-manager.conf", "scheduler.conf"}
HURRIED = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
apply:
  kubernetesVersion: {NEXT}
  forceUpgrade: true
  ignorePreflightErrors: [SystemVerification, CreateJob]
  patches: {{directory: {PATCHES}}}
timeouts: {{upgradeManifests: 2m}}
"""
"""What kubeadm is given: by default, it waits five minutes for a pod that the kubelet does not create."""
UNMOUNTABLE = json.dumps([{"op": "add", "path": "/spec/containers/0/volumeMounts/-", "value": {"name": "none", "mountPath": "/none"}}])
"""A patch with which the kubelet creates no pod."""
OWN = ("/etc/kubernetes/tmp", "/var/lib/kubewright", "/run/kubewright")
"""Where each tool keeps what it had before, and where kubewright has its lock, which is not on the disk."""
UNIT_DIRECTORIES = ("/etc/systemd", "/etc/systemd/system", "/etc/systemd/system/multi-user.target.wants")
"""Directories of the system that are copied to a machine's own disk while our boot unit exists in them."""


def configuration(machine: Machine) -> str:
    """Return the configuration of a control plane with the default patience with starts: an upgrade writes it into each manifest."""
    return INIT.format(address=machine.address).replace("controlPlaneComponentHealthCheck: 10m", "controlPlaneComponentHealthCheck: 4m")


def running(machine: Machine, names: Sequence[str] = COMPONENTS) -> dict[str, str]:
    """The versions of the running programs, as reported by the file that each process was started from."""
    script = 'for name in "$@"; do for pid in $(pidof "$name"); do "/proc/$pid/exe" --version | sed "s/.* /$name /"; done; done'
    said = machine.run("sh", "-c", script, "versions", *names, check=False).out
    return dict(line.split(maxsplit=1) for line in said.splitlines())


def require_running(machine: Machine, version: str) -> None:
    """Require that no component runs in another version. One that lost its lease, as on a busy machine, has ended and is started again."""
    found = running(machine)
    assert set(found.values()) <= {version}, found
    eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, version), f"the components to run in {version}")


def content(machine: Machine) -> dict[str, bytes]:
    """Return every file of /etc/kubernetes but for the backups, which both tools leave."""
    root = machine.root / "etc/kubernetes"
    found = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("tmp/")}


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    """Return the names of files that differ."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def patch(machine: Machine, component: str, patches: str) -> None:
    """Give a machine a directory with one patch, for root only."""
    machine.run("sh", "-c", f"rm -rf {PATCHES}; mkdir -m 700 {PATCHES}")
    write(machine, f"{PATCHES}/{component}+json.yaml", patches)


def argument(value: str) -> str:
    """Return the patch that adds an argument to a component."""
    return json.dumps([{"op": "add", "path": "/spec/containers/0/command/-", "value": value}])


def apply(machine: Machine, *more: str, check: bool = True) -> Ended:
    return kubewright(machine, "upgrade", "apply", NEXT, "--yes", "--force", IGNORED, *more, check=check)


def changes(ended: Ended) -> list[str]:
    """Return the targets of the changes in the result of an upgrade with `-o json`."""
    return [one["target"] for one in json.loads(ended.out)["changes"]]


def state(machine: Machine) -> State:
    """Return what both tools must have made alike. The machine is a control plane."""
    found = {name: one for name, one in objects(machine).items() if "health-check" not in name}
    return {"files": files_made(machine), "objects": _without_address(found, machine)}


def files_made(machine: Machine) -> State:
    """Return the files that both tools must have made alike."""
    kept = {name: one for name, one in files(machine, besides=OWN).items() if name not in UNIT_DIRECTORIES}
    return _without_address(kept, machine)


def _without_address(found: State, machine: Machine) -> State:
    told: State = json.loads(json.dumps(found).replace(machine.address, "ADDRESS"))
    return told


@contextmanager
def pod_of_a_gone_machine(machine: Machine) -> Iterator[None]:
    """Let the cluster have the mirror pod of an API server whose Node was deleted; a finalizer keeps the garbage collector from removing it."""
    name = "kube-apiserver-gone"
    metadata = {"name": name, "labels": {"component": "kube-apiserver", "tier": "control-plane"}, "finalizers": ["kubewright.test/keep"]}
    container = {"name": "kube-apiserver", "image": f"registry.k8s.io/kube-apiserver:{KUBERNETES}"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "gone", "containers": [container]}}
    administer(machine, "-n", "kube-system", "create", "-f", "-", data=json.dumps(body))
    try:
        yield
    finally:
        administer(machine, "-n", "kube-system", "patch", "pod", name, "--type=merge", '-p={"metadata":{"finalizers":null}}')
        administer(machine, "-n", "kube-system", "delete", "pod", name, "--force", "--grace-period=0", "--ignore-not-found")


@contextmanager
def etcd_wanted(machine: Machine, tag: str) -> Iterator[None]:
    """Let the cluster's configuration have another tag for etcd, of which the machine has an image."""
    repository = "registry.k8s.io/etcd"
    present = next(
        name for name in machine.run("ctr", "-n", "k8s.io", "images", "list", "-q").out.split() if name.startswith(f"{repository}:")
    )
    machine.run("ctr", "-n", "k8s.io", "images", "tag", "--force", present, f"{repository}:{tag}")
    _configure_etcd(machine, {"imageTag": tag})
    try:
        yield
    finally:
        _configure_etcd(machine, {"imageTag": None})


def _configure_etcd(machine: Machine, fields: dict[str, str | None]) -> None:
    """Change fields of etcd in the cluster's configuration; None removes one."""
    found = kubectl(machine, "-n", "kube-system", "get", "configmap", "kubeadm-config")
    document = yaml.load(found["data"]["ClusterConfiguration"], source="kubeadm-config")
    local = {**document["etcd"]["local"], **fields}
    document["etcd"]["local"] = {name: value for name, value in local.items() if value is not None}
    found["data"]["ClusterConfiguration"] = yaml.dump(document)
    administer(machine, "replace", "-f", "-", data=json.dumps(found))
