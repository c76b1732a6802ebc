"""Workers that join through a hub on whole machines: to a Node that is Ready, refused by policy, killed on the way, and leaving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from machine_kit import CONFIG, ENVIRONMENT, INIT, SHARED, argv, eventually, kubectl, kubewright, write
from testbed.bed import Bed, Parts
from testbed.machine import Ended, Machine

PKI = "/etc/kubernetes/pki"
KUBELET = "cgroupDriver: cgroupfs\nfailCgroupV1: false  # these machines have cgroup v1\n"
UNIT = """\
[Unit]
Description=hub
[Service]
Type=notify
Environment={environment}
ExecStart={command}
Restart=always
RestartSec=1
"""
HUB = "apiVersion: hub.kubewright/v1alpha1\nkind: HubConfiguration\nstate: /var/lib/kubewright/hub/state.db\nkeyFile: /var/lib/kubewright/hub/state.key\n"


@dataclass(frozen=True)
class Tenant:
    """A control plane with a hub beside it, and machines that are to join."""

    bed: Bed
    created: dict[str, Any]

    @property
    def one(self) -> Machine:
        return self.bed["one"]

    def hub(self, *words: str, check: bool = True) -> Ended:
        return kubewright(self.one, "hub", *words, "--config", "/root/hub.yaml", check=check)

    def join(self, machine: Machine, *more: str, check: bool = True, **environment: str) -> Ended:
        write(machine, "/root/token", self.created["token"])
        write(machine, "/root/ca.crt", self.one.run("cat", f"{PKI}/ca.crt").out)
        given = {
            "apiserver-endpoint": f"https://{self.one.address}:6443",
            "apiserver-ca-cert-file": "/root/ca.crt",
            "join-token": "/root/token",
            "join-key-fingerprint": self.created["joinKey"],
        }
        flags = [f"--{name}={value}" for name, value in given.items()]
        return machine.run(*argv("node", "join", *flags, *more), env={**ENVIRONMENT, **environment}, check=check)

    def ready(self, name: str) -> bool:
        conditions = kubectl(self.one, "get", "node", name).get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@pytest.fixture(scope="module")
def tenant(parts: Parts) -> Iterator[Tenant]:
    with Bed("one", "two", "three", bed="hub", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, INIT.format(address=one.address))
        kubewright(one, "init", "--config", CONFIG)
        write(one, "/root/kubelet.yaml", KUBELET)
        write(one, "/root/hub.yaml", HUB)
        environment = " ".join(f'"{name}={value}"' for name, value in ENVIRONMENT.items())
        command = " ".join(argv("hub", "run", "--config", "/root/hub.yaml"))
        write(one, "/etc/systemd/system/hub.service", UNIT.format(environment=environment, command=command))
        made = Tenant(bed, {})
        ca = (f"--client-ca-cert-file={PKI}/ca.crt", f"--client-ca-key-file={PKI}/ca.key")
        made.hub(
            *("cluster", "add", "a", "--kubeconfig=/etc/kubernetes/admin.conf", *ca, "--kubelet-config=/root/kubelet.yaml"),
            *("--allow-node-names=two", "--pod-network-cidr=10.244.0.0/16", f"--server=https://{one.address}:6443"),
        )
        one.run("systemctl", "daemon-reload")
        one.run("systemctl", "start", "hub")
        yield Tenant(bed, json.loads(made.hub("token", "create", "a", "-o", "json").out))


def test_a_worker_joins_through_the_hub_and_is_ready(tenant: Tenant) -> None:
    two = tenant.bed["two"]
    planned = json.loads(tenant.join(two, "--plan", "-o", "json").out)
    assert [row["action"] for row in planned if row["target"] == "nodejoinrequest two"] == ["create"]
    assert two.run("ls", "/etc/oneinfra", check=False).code != 0
    said = tenant.join(two).out
    assert "This machine is the node two of the cluster, and Ready" in said
    assert tenant.ready("two")
    assert kubectl(tenant.one, "get", "node", "two")["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.3"
    again = json.loads(tenant.join(two, "-o", "json").out.splitlines()[-1])
    assert again == []


def test_a_name_that_the_cluster_does_not_allow_is_refused_and_says_so(tenant: Tenant) -> None:
    ended = tenant.join(tenant.bed["three"], check=False)
    assert ended.code == 1
    assert "does not let three in: NameNotAllowed" in ended.err
    assert '"three" fits none of two' in ended.err
    assert tenant.bed["three"].run("ls", "/etc/oneinfra", check=False).code != 0


def test_a_power_cut_changes_nothing_and_the_hub_comes_back(tenant: Tenant) -> None:
    two = tenant.bed["two"]
    two.cut_power()
    two.boot()
    two.ready()
    tenant.one.run("systemctl", "kill", "--signal=KILL", "hub")
    assert "and Ready" in tenant.join(two).out
    eventually(lambda: tenant.one.run("systemctl", "is-active", "hub", check=False).out.strip() == "active", "the hub to come back")


def _pods(tenant: Tenant, node: str) -> int:
    found = kubectl(tenant.one, "-n", "default", "get", "pods", f"--field-selector=spec.nodeName={node}")
    return len(found.get("items", []))


def test_a_node_that_leaves_frees_its_name_and_keeps_no_key(tenant: Tenant) -> None:
    two = tenant.bed["two"]
    busy = ("kubectl", "create", "deployment", "busy", "--image=docker.io/library/busybox:test", "--replicas=2", "--", "sleep", "1000")
    tenant.one.run(*busy, env={"KUBECONFIG": "/etc/kubernetes/admin.conf"})
    eventually(lambda: _pods(tenant, "two") >= 2, "pods to be placed on two")
    left = kubewright(two, "node", "leave", "--drain").out
    assert "Evicting the pods of the node two" in left
    assert _pods(tenant, "two") == 0
    assert "Asked the hub to let the node two go" in left
    assert kubectl(tenant.one, "get", "node", "two") == {}
    assert kubectl(tenant.one, "get", "nodejoinrequest", "two") == {}
    assert two.run("find", "/etc/oneinfra", "/var/lib/kubelet", "/var/lib/kubewright", "-type", "f", check=False).out == ""
    assert two.run("systemctl", "is-active", "kubelet", check=False).out.strip() != "active"
    events = [row["event"] for row in json.loads(tenant.hub("journal", "-o", "json").out) if row["node"] == "two"]
    assert events == ["issued", "left"]
    two.run("sh", "-c", "mkdir /root/programs && mv $(command -v kubelet) /root/programs")
    said = tenant.join(two, KUBEWRIGHT_BINARIES_DIR="/root/programs").out
    assert "Installing the kubelet v1.36.3" in said
    assert tenant.ready("two")
    assert "/usr/local/bin/kubelet" in two.run("systemctl", "show", "--property=ExecStart", "kubelet").out
