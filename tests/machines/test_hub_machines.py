"""Workers that join through a hub on whole machines: until the Node is Ready, refused by policy, killed during the join, and leaving."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import kubelet_failures
import pytest
from canary_kit import Arguments, files, journal, seen
from machine_kit import (
    CONFIG,
    ENVIRONMENT,
    INIT,
    SHARED,
    Running,
    administer,
    argv,
    eventually,
    gone,
    kubectl,
    kubewright,
    used_by,
    write,
)
from testbed.bed import Bed
from testbed.configuration import SHARED_DISK
from tunnel_kit import UDP, addresses, capture, carry_pods, exposed, peers

import canaries
from kubewright import binaries
from kubewright.apis.node_join_requests import CONFIG_MAP, NAMESPACE
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts
from kubewright.manifests import units
from kubewright.pki import certificates

GIVEN_BY_US = {"/root/token", "/root/ca.key", "/root/admin.conf", "/root/copy.db"}
"""Files that these tests write, not kubewright."""
PKI = "/etc/kubernetes/pki"
VPN, VPN6 = "10.64.0.0/16", "fd00:64::/64"
INTERFACE = "wg-86f7e437faa5"  # contains the cluster's name
BEFORE = "v1.35.4"
"""The kubelet of the minor release before the cluster's."""
PACKAGED = "/lib/systemd/system"
PROGRAMS = "/opt/kubewright/before"
"""Its path in a machine."""
KUBELET = f"""\
cgroupDriver: cgroupfs
failCgroupV1: false  # these machines have cgroup v1
rotateCertificates: true
serverTLSBootstrap: true
{SHARED_DISK}"""
SHORT = "6m"
"""Lifetime of one node's certificates: its kubelet requests new ones after 0.7 to 0.9 of it, and has half a minute at least to get them."""
UNIT = """\
[Unit]
Description=hub
[Service]
Type=notify
TimeoutStartSec=600
Environment={environment}
ExecStart={command}
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
HUB = "apiVersion: hub.kubewright/v1alpha1\nkind: HubConfiguration\nstate: /var/lib/kubewright/hub/state.db\nkeyFile: /var/lib/kubewright/hub/state.key\n"


@dataclass(frozen=True)
class Tenant:
    """A control plane, a hub on another machine, and machines that are to join."""

    bed: Bed
    created: dict[str, Any]
    units: dict[str, tuple[str, str]]
    """The kubelet's service of each machine as it was at the beginning."""

    @property
    def one(self) -> Machine:
        return self.bed["one"]

    @property
    def serving(self) -> Machine:
        """The hub's machine."""
        return self.bed["hub"]

    def hub(self, *words: str, check: bool = True) -> Ended:
        return kubewright(self.serving, "hub", *words, "--config", "/root/hub.yaml", check=check)

    def add(self, *more: str) -> None:
        """Add the cluster, or change its requirements for nodes; a running hub has noticed the change afterwards."""
        runs = self.serving.run("systemctl", "is-active", "hub", check=False).out.strip() == "active"
        before = self.served
        files = ("--kubeconfig=/root/admin.conf", "--client-ca-cert-file=/root/ca.crt", "--client-ca-key-file=/root/ca.key")
        self.hub(
            *("cluster", "add", "a", *files, "--kubelet-config=/root/kubelet.yaml", "--allow-node-names=two,four"),
            *("--pod-network-cidr=10.244.0.0/16", f"--server=https://{self.one.address}:6443"),
            *(f"--vpn-cidr={VPN},{VPN6}", f"--vpn-endpoint={self.serving.address}:51820"),
            *(f"--vpn-server=https://{self.one.address}:6443", *more),
        )
        if runs:
            eventually(lambda: self.served > before, "the hub to notice")

    def takes_requests(self) -> bool:
        """Whether the cluster has the join key and the token."""
        token = f"bootstrap-token-{self.created['token'].partition('.')[0]}"
        wanted = (("configmap", CONFIG_MAP, NAMESPACE), ("secret", token, "kube-system"))
        return all(kubectl(self.one, "-n", namespace, "get", kind, name) for kind, name, namespace in wanted)

    @property
    def served(self) -> int:
        """How often the hub has started to serve the cluster."""
        return self.serving.run("journalctl", "-u", "hub", "--no-pager", "-o", "cat", check=False).out.count(" is served at ")

    def join(self, machine: Machine, *more: str, check: bool = True, **environment: str) -> Ended:
        return machine.run(*argv(*self.join_arguments(machine), *more), env={**ENVIRONMENT, **environment}, check=check)

    def join_arguments(self, machine: Machine) -> list[str]:
        """Give a machine the token and the CA; returns the arguments with which it joins."""
        write(machine, "/root/token", self.created["token"])
        write(machine, "/root/ca.crt", self.one.run("cat", f"{PKI}/ca.crt").out)
        given = {
            "apiserver-endpoint": f"https://{self.one.address}:6443",
            "apiserver-ca-cert-file": "/root/ca.crt",
            "join-token": "/root/token",
            "join-key-fingerprint": self.created["joinKey"],
        }
        return ["node", "join", *(f"--{name}={value}" for name, value in given.items())]

    def records(self) -> list[dict[str, Any]]:
        return [row for row in json.loads(self.hub("nodes", "-o", "json").out) if row["state"] == "Issued"]

    def require_peers(self) -> None:
        """Whether the hub's interface has exactly the peers of the records."""
        wanted = {row["tunnelKey"]: "{}/32,{}/128".format(*row["lease"].split(",")) for row in self.records()}
        eventually(lambda: peers(self.serving, INTERFACE) == wanted, f"{INTERFACE} to have {wanted}")

    def ready(self, name: str) -> bool:
        conditions = kubectl(self.one, "get", "node", name).get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@pytest.fixture(scope="module")
def bare(parts: Parts, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A control plane, a hub that serves it, and machines that have not joined: `three` only if a selected test uses it."""
    with Bed("one", "two", *used_by(request, "three"), "hub", bed="hub", parts=parts, shared=SHARED) as bed:
        one, serving = bed["one"], bed["hub"]
        write(one, CONFIG, INIT.format(address=one.address))
        kubewright(one, "init", "--config", CONFIG)
        one.run("ip", "route", "add", VPN, "via", serving.address)
        for name in ("admin.conf", "pki/ca.crt", "pki/ca.key"):
            write(serving, f"/root/{PurePosixPath(name).name}", one.run("cat", f"/etc/kubernetes/{name}").out)
        write(serving, "/root/kubelet.yaml", KUBELET)
        write(serving, "/root/hub.yaml", HUB)
        environment = " ".join(f'"{name}={value}"' for name, value in ENVIRONMENT.items())
        command = " ".join(argv("hub", "run", "--config", "/root/hub.yaml"))
        write(serving, "/etc/systemd/system/hub.service", UNIT.format(environment=environment, command=command))
        made = Tenant(bed, {}, {"two": _service(bed["two"])})
        made.add()
        serving.run("systemctl", "daemon-reload")
        serving.run("systemctl", "enable", "--now", "hub")
        tenant = Tenant(bed, json.loads(made.hub("token", "create", "a", "-o", "json").out), made.units)
        eventually(tenant.takes_requests, "the hub to have made the cluster ready for nodes")  # a join waits ten seconds for that
        yield tenant


def _service(machine: Machine) -> tuple[str, str]:
    """Return the unit of the kubelet with its drop-ins, as systemd sees them, and whether it is enabled."""
    return machine.run("systemctl", "cat", "kubelet").out, machine.run("systemctl", "is-enabled", "kubelet", check=False).out.strip()


@pytest.fixture(scope="module")
def three(bare: Tenant) -> Machine:
    """A machine whose kubelet came from a package, and was not enabled."""
    machine = bare.bed["three"]
    machine.run("systemctl", "disable", "kubelet")
    machine.run("sh", "-c", f"mkdir -p {PACKAGED} && mv /etc/systemd/system/kubelet.service* {PACKAGED}/ && systemctl daemon-reload")
    bare.units["three"] = _service(machine)
    return machine


def test_systemd_reads_our_quoted_words_and_line_breaks_as_expected(three: Machine) -> None:
    words = ["a b", "%h%%", "$HOME", "${PATH}", '"', "'", "back\\", "\\x41", ";", "", "é\u00a0x", "#", "@{}*?[]", "-"]
    script = 'printf "%s=" "$@" > /root/words'
    command = f"{units.program(PurePosixPath('/bin/sh'))} {units.arguments('-c', script, 'sh', *words)}"
    write(three, "/etc/systemd/system/words.service", f"[Service]\nType=oneshot\nExecStart={command}\n")
    injected = "x\0ExecStartPost=/bin/touch /root/nul\0ExecStartPost=/bin/touch /root/cr\rExecStartPost=/bin/touch /root/end"
    write(three, "/etc/systemd/system/injected.service", f"[Service]\nType=oneshot\nExecStart=/bin/echo {injected}\n")
    three.run("systemctl", "daemon-reload")
    three.run("systemctl", "start", "words", "injected")
    assert three.run("cat", "/root/words").out.split("=") == [*words, ""]
    assert three.run("sh", "-c", "cd /root && ls nul cr end").out.split() == ["cr", "end", "nul"]  # so such values must be refused
    three.run("sh", "-c", "cd /etc/systemd/system && rm words.service injected.service")


@pytest.fixture(scope="module")
def tenant(bare: Tenant, three: Machine) -> Tenant:
    """The same with the machine `two` as a node, and the machine `three`."""
    if not bare.records():
        bare.join(bare.bed["two"])
    return bare


def test_a_worker_joins_through_the_hub_and_is_ready(bare: Tenant) -> None:
    """Even after another name was refused, which does not interfere."""
    tenant, two = bare, bare.bed["two"]
    refused = tenant.join(two, "--nodename", "another", check=False)
    assert (refused.code, "does not admit another: NameNotAllowed" in refused.err) == (1, True)
    planned = json.loads(tenant.join(two, "--plan", "-o", "json").out)
    assert [row["action"] for row in planned if row["target"] == "nodejoinrequest two"] == ["create"]
    assert [row["action"] for row in planned if row["target"] == "service oi-wg"] == ["update"]
    assert addresses(two, "oi-wg") == []
    assert two.run("ls", "/etc/oneinfra", check=False).code != 0
    _require_faults_told(tenant, two)
    said = tenant.join(two).out
    assert "This machine is the node two of the cluster, and Ready" in said
    eventually(lambda: tenant.ready("two"), "the Node to be Ready")
    found = kubectl(tenant.one, "get", "node", "two")["status"]
    assert found["nodeInfo"]["kubeletVersion"] == "v1.36.3"
    [lease] = [row["lease"].split(",") for row in tenant.records()]
    assert [row["address"] for row in found["addresses"] if row["type"] == "InternalIP"] == lease
    again = json.loads(tenant.join(two, "-o", "json").out.splitlines()[-1])
    assert again == []


def _require_faults_told(tenant: Tenant, machine: Machine) -> None:
    """Problems that keep a kubelet from starting are reported before it is installed, and its failures are reported as by `join`."""
    machine.run("sh", "-c", f"printf '{kubelet_failures.SWAP}' > /root/swaps; mount --bind /root/swaps /proc/swaps")
    refused = tenant.join(machine, check=False)
    assert refused.code == 4
    assert "[ERROR Swap]: swap is on, and the kubelet does not start with it unless its configuration has failSwapOn: false" in refused.err
    assert machine.run("ls", "/etc/oneinfra", check=False).code != 0
    ended = tenant.join(machine, "--ignore-preflight-errors=Swap", check=False)
    assert ended.code == 1
    assert "error: the kubelet does not stay up" in ended.err
    assert "running with swap on is not supported" in ended.err
    assert "hint: switch swap off" in ended.err
    machine.run("umount", "/proc/swaps")


def test_a_name_that_the_cluster_does_not_allow_is_refused_with_a_reason(tenant: Tenant) -> None:
    ended = tenant.join(tenant.bed["three"], check=False)
    assert ended.code == 1
    assert "does not admit three: NameNotAllowed" in ended.err
    assert '"three" fits none of two, four' in ended.err
    assert tenant.bed["three"].run("ls", "/etc/oneinfra", check=False).code != 0


def test_a_missing_program_of_the_vpn_is_reported_before_the_request(tenant: Tenant) -> None:
    three = tenant.bed["three"]
    kubewright(three, "reset", "--force")  # it has made a request under another name
    three.run("mv", "/usr/bin/wg", "/root/wg")
    ended = tenant.join(three, "--nodename=four", check=False)
    three.run("mv", "/root/wg", "/usr/bin/wg")
    assert ended.code == 4
    assert "[ERROR WireGuard]: wg is not installed" in ended.err
    assert gone(tenant.one, "nodejoinrequest", "four")


def _answers(machine: Machine, address: str = "10.64.0.1") -> bool:
    return machine.run("ping", "-c", "1", "-W", "1", address, check=False).code == 0


def _pod(tenant: Tenant, node: str, *command: str) -> str:
    """Run a pod on a node and return its address."""
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0}
    words = ("run", f"on-{node}", "--image=docker.io/library/busybox:test", f"--overrides={json.dumps({'spec': spec})}")
    administer(tenant.one, *words, "--command", "--", *command)

    def status() -> dict[str, Any]:
        return dict(kubectl(tenant.one, "-n", "default", "get", "pod", f"on-{node}").get("status", {}))

    eventually(lambda: status().get("phase") == "Running" and bool(status().get("podIP")), f"the pod on {node} to run")
    return str(status()["podIP"])


def _join_with_the_kubelet_before(tenant: Tenant, machine: Machine, name: str) -> None:
    """Let a machine that has the cluster's kubelet join with that of the previous minor release, with flags that the older one has."""
    found = binaries.ensure(("kubelet",), version=BEFORE, sources=binaries.sources_from({**os.environ, "KUBEWRIGHT_BINARIES_DIR": ""}))
    place = machine.root / PROGRAMS.lstrip("/")
    place.mkdir(parents=True)
    shutil.copy(found["kubelet"].path, place)
    tenant.add(f"--kubernetes-version={BEFORE}", f"--certificate-lifetime={SHORT}")
    said = tenant.join(machine, f"--nodename={name}", KUBEWRIGHT_BINARIES_DIR=PROGRAMS).out
    tenant.add()
    assert f"Installing the kubelet {BEFORE}" in said
    assert "and Ready" in said
    assert kubectl(tenant.one, "get", "node", name)["status"]["nodeInfo"]["kubeletVersion"] == BEFORE
    started = machine.run("systemctl", "show", "--property=ExecStart", "kubelet").out
    given = re.findall(r"(?<=\s)(--[a-z-]+)=", started)
    assert len(given) == 4
    program = "/usr/local/bin/kubelet"
    assert f"{program} --kubeconfig=" in started
    assert _service(machine)[1] == "enabled"
    assert machine.run("systemctl", "show", "--property=FragmentPath", "--value", "kubelet").out.strip() == f"{PACKAGED}/kubelet.service"
    known = machine.run(program, "--help").out
    assert [flag for flag in given if f"{flag} " not in known] == []


def test_pods_reach_each_other_through_the_tunnel_and_only_wireguard_is_on_the_wire(tenant: Tenant) -> None:
    one, two, three, serving = (tenant.bed[name] for name in ("one", "two", "three", "hub"))
    _join_with_the_kubelet_before(tenant, three, "four")
    tenant.require_peers()
    lease, lease6 = ({row["node"]: row["lease"].split(",")[index] for row in tenant.records()} for index in (0, 1))
    assert addresses(two, "oi-wg") == [f"{lease['two']}/16", f"{lease6['two']}/64"]
    assert addresses(serving, INTERFACE) == ["10.64.0.1/16", "fd00:64::1/64"]
    eventually(lambda: _answers(two, lease6["four"]), "the other node to answer in the VPN")
    assert "wireguard-go" in two.run("systemctl", "show", "--property=ExecStart", "oi-wg").out
    carry_pods(two, 2, lease["two"], lease["four"], behind="10.244.3.0/24")
    carry_pods(three, 3, lease["four"], lease["two"], behind="10.244.2.0/24")
    with capture(two) as seen:
        served = _pod(tenant, "four", "sh", "-c", "head -c 200000 /dev/zero > /tmp/zeros; httpd -f -p 8080 -h /tmp")
        _pod(tenant, "two", "sleep", "3600")
        fetched = f"wget -q -O - http://{served}:8080/zeros | wc -c"
        asked = ("exec", "on-two", "--", "sh", "-c", fetched)
        eventually(lambda: administer(one, *asked, check=False).out.strip() == "200000", "the pod on four to serve")
    ours = {two.address, three.address, one.address, serving.address}
    kinds = {words: count for words, count in seen.items() if set(words.split()[:2]) <= ours}
    through = " ".join([*sorted((two.address, serving.address)), UDP])
    assert list(kinds) == [through]
    assert kinds[through] > 20
    administer(one, "delete", "pod", "on-two", "on-four", "--now")


def test_a_node_cannot_reach_anything_else_behind_the_hub(tenant: Tenant) -> None:
    one, two, hub = (tenant.bed[name] for name in ("one", "two", "hub"))
    other = f"{one.address.rpartition('.')[0]}.99"  # answers like the API server's address, and is not named
    one.run("ip", "address", "add", f"{other}/24", "dev", "eth0")
    public = hub.run("wg", "show", INTERFACE, "public-key").out.strip()
    two.run("wg", "set", "oi-wg", "peer", public, "allowed-ips", f"{VPN},{one.address}/32,{other}/32")
    two.run("ip", "route", "add", other, "dev", "oi-wg")
    eventually(lambda: _answers(two, one.address), "the API server's machine to answer")
    assert not _answers(two, other)
    hub.run("systemctl", "stop", "hub")  # which would repair what follows
    hub.run("nft", "delete", "table", "inet", f"kubewright-{INTERFACE}")
    eventually(lambda: _answers(two, other), "the other address to answer: it was the hub's rules that kept it back")
    hub.run("systemctl", "start", "hub")
    eventually(lambda: not _answers(two, other), "the rules to be repaired")
    two.run("systemctl", "restart", "oi-wg")
    eventually(lambda: _answers(two), "the tunnel to be as before")


def test_keys_of_the_vpn_are_only_where_they_belong(tenant: Tenant) -> None:
    two, serving = tenant.bed["two"], tenant.serving
    key, public = two.run("cat", "/etc/oneinfra/wg.key").out.strip(), two.run("wg", "show", "oi-wg", "public-key").out.strip()
    assert two.run("stat", "-c", "%a %U", "/etc/oneinfra/wg.key").out.split() == ["600", "root"]
    assert public in [row["tunnelKey"] for row in tenant.records()]
    for machine in (two, serving):
        assert exposed(machine, key) == []
    assert exposed(serving, serving.run("wg", "show", INTERFACE, "private-key").out.strip()) == []
    assert exposed(serving, public) != []  # the search finds what it should find


def test_a_node_replaces_its_vpn_key_even_if_the_hub_is_down_in_between(tenant: Tenant) -> None:
    two, serving = tenant.bed["two"], tenant.serving
    [lease] = [row["lease"] for row in tenant.records() if row["node"] == "two"]
    first = two.run("wg", "show", "oi-wg", "public-key").out.strip()
    device = _device(two)
    assert "The hub has accepted the new key" in kubewright(two, "node", "rotate-vpn-key").out
    second = two.run("wg", "show", "oi-wg", "public-key").out.strip()
    assert second != first
    tenant.require_peers()
    for phase in ("vpn-key", "offer"):
        kubewright(two, "node", "rotate-vpn-key", "phase", phase)
    assert two.run("wg", "show", "oi-wg", "public-key").out.strip() == second
    eventually(lambda: _answers(two), "the hub to answer: the old key is valid")
    eventually(lambda: len(peers(serving, INTERFACE)) == 3, "a peer with the new key")
    serving.run("systemctl", "kill", "--signal=KILL", "hub")
    serving.run("systemctl", "stop", "hub")
    kubewright(two, "node", "rotate-vpn-key", "phase", "use-key")
    third = two.run("wg", "show", "oi-wg", "public-key").out.strip()
    serving.run("systemctl", "start", "hub")
    eventually(lambda: _answers(two), "the hub to take the key that it has heard")
    kubewright(two, "node", "rotate-vpn-key")
    assert two.run("wg", "show", "oi-wg", "public-key").out.strip() == third
    tenant.require_peers()
    [row] = [row for row in tenant.records() if row["node"] == "two"]
    assert (row["lease"], row["tunnelKey"]) == (lease, third)
    assert _device(two) == device  # interfaces that are bound to it, such as flannel's, have stayed
    assert two.run("ls", "/var/lib/kubewright/node-tunnel-next.key", check=False).code != 0
    key = two.run("cat", "/etc/oneinfra/wg.key").out.strip()
    assert exposed(two, key) == []


def _device(machine: Machine) -> int:
    return int(json.loads(machine.run("ip", "-json", "link", "show", "dev", "oi-wg").out)[0]["ifindex"])


def test_the_hub_replaces_its_vpn_key_and_nodes_follow_with_the_new_key(tenant: Tenant) -> None:
    two, three = tenant.bed["two"], tenant.bed["three"]
    [row] = json.loads(tenant.hub("cluster", "rotate-vpn-key", "a", "-o", "json").out)
    eventually(lambda: not _answers(two), "the old key of the hub to be of no use")
    for machine in (two, three):
        assert "The hub has accepted the new key" in kubewright(machine, "node", "rotate-vpn-key", "--hub-key", row["vpnKey"]).out
    tenant.require_peers()
    for machine in (two, three):
        eventually(lambda machine=machine: _answers(machine), f"the hub to answer {machine.name}")
        assert row["vpnKey"] in machine.run("wg", "show", "oi-wg", "peers").out


def test_a_power_cut_changes_nothing_and_the_hub_comes_back(tenant: Tenant) -> None:
    two, serving = tenant.bed["two"], tenant.serving
    two.cut_power()
    two.boot()
    two.ready()
    serving.run("systemctl", "kill", "--signal=KILL", "hub")
    assert len(peers(serving, INTERFACE)) == 2  # no other connections end with the hub
    assert "and Ready" in tenant.join(two).out
    eventually(lambda: serving.run("systemctl", "is-active", "hub", check=False).out.strip() == "active", "the hub to come back")
    tenant.require_peers()


def _pods(tenant: Tenant, node: str) -> int:
    found = kubectl(tenant.one, "-n", "default", "get", "pods", f"--field-selector=spec.nodeName={node}")
    return len(found.get("items", []))


def test_a_node_that_leaves_frees_its_name_and_keeps_no_key(tenant: Tenant) -> None:
    two = tenant.bed["two"]
    administer(tenant.one, "cordon", "four")
    busy = ("create", "deployment", "busy", "--image=docker.io/library/busybox:test", "--replicas=2")
    administer(tenant.one, *busy, "--", "sh", "-c", "trap exit TERM; while :; do sleep 1; done")
    eventually(lambda: _pods(tenant, "two") >= 2, "pods to be placed on two")
    left = kubewright(two, "node", "leave", "--drain").out
    assert "Evicting the pods of the node two" in left
    assert _pods(tenant, "two") == 0
    assert "Asked the hub to remove the node two" in left
    assert gone(tenant.one, "node", "two")
    eventually(lambda: gone(tenant.one, "nodejoinrequest", "two"), "its request to be deleted")
    assert addresses(two, "oi-wg") == []
    assert two.run("ls", "/etc/systemd/system/oi-wg.service", check=False).code != 0
    eventually(lambda: [row["node"] for row in tenant.records()] == ["four"], "its record to end")
    tenant.require_peers()
    assert two.run("find", "/etc/oneinfra", "/var/lib/kubelet", "/var/lib/kubewright", "-type", "f", check=False).out == ""
    assert two.run("systemctl", "is-active", "kubelet", check=False).out.strip() != "active"
    assert _service(two) == tenant.units["two"]
    events = [row["event"] for row in json.loads(tenant.hub("journal", "-o", "json").out) if row["node"] == "two"]
    assert events == ["issued", *["vpn key changed"] * 3, "left"]


def test_a_worker_waits_for_approval_while_the_hub_is_restored_from_a_backup(tenant: Tenant) -> None:
    two, serving = tenant.bed["two"], tenant.serving
    tenant.add("--approval=human")
    before = tenant.records()
    two.run("sh", "-c", "mkdir /root/programs && mv $(command -v kubelet) /root/programs")
    arguments = Arguments(two)
    with arguments.watched():
        joining = Running(two, *tenant.join_arguments(two), "-o", "json", KUBEWRIGHT_BINARIES_DIR="/root/programs")
        joining.says("AwaitingApproval: it waits for approval")
        assert _waiting(tenant) == ["two"]
        tenant.hub("backup", "/root/copy.db")
        serving.run("systemctl", "stop", "hub")
        serving.run("sh", "-c", "rm /var/lib/kubewright/hub/state.db*")
        tenant.hub("restore", "/root/copy.db")
        serving.run("systemctl", "start", "hub")
        assert tenant.records() == before
        assert tenant.hub("requests", "approve", "a", "two").out == "a two: approved\n"
        ended = joining.ended()
    assert ended.code == 0, ended.err
    assert "Installing the kubelet v1.36.3" in ended.err
    eventually(lambda: tenant.ready("two"), "the Node to be Ready")
    assert "/usr/local/bin/kubelet" in two.run("systemctl", "show", "--property=ExecStart", "kubelet").out
    tenant.require_peers()
    wanted = _wanted(tenant)
    assert seen(" ".join(arguments.found) + ended.err, wanted) == set()
    for machine in (two, serving, tenant.one):
        assert seen(journal(machine), wanted) == set()
    kept = [(machine.name, one) for machine in (two, serving) for one in files(machine, wanted)]
    assert {one.canary for _, one in kept} == set(wanted)  # the search finds what it should find
    assert [(name, one.path) for name, one in kept if not one.private and one.path not in GIVEN_BY_US] == []
    assert [one.path for name, one in kept if name == "hub" and one.path.endswith((".db", ".db-wal"))] == []


def _waiting(tenant: Tenant) -> list[str]:
    rows = json.loads(tenant.hub("requests", "-o", "json").out)
    return [row["node"] for row in rows if row["state"] == "AwaitingApproval"]


def _wanted(tenant: Tenant) -> dict[str, tuple[str, ...]]:
    """Return canaries of the secrets of this join: the token, the keys that the worker was given, and the hub's keys."""
    two = tenant.bed["two"]
    kubeconfig = two.run("cat", "/etc/oneinfra/kubelet.conf").out
    data = next(line.split()[1] for line in kubeconfig.splitlines() if "client-key-data" in line)
    return {
        "token": (tenant.created["token"].partition(".")[2],),
        "serving key": canaries.forms(two.run("cat", "/etc/oneinfra/kubelet.key").out),
        "client key": canaries.forms(base64.b64decode(data).decode()),
        "authority": canaries.forms(tenant.serving.run("cat", "/root/ca.key").out),
        "state key": (tenant.serving.run("cat", "/var/lib/kubewright/hub/state.key").out.split()[0],),
    }


def test_a_node_cannot_change_other_nodes(tenant: Tenant) -> None:
    two = tenant.bed["two"]
    mine = {"KUBECONFIG": "/etc/oneinfra/kubelet.conf"}
    assert two.run("kubectl", "label", "node", "two", "own=1", env=mine).out == "node/two labeled\n"
    ended = two.run("kubectl", "label", "node", "four", "own=1", env=mine, check=False)
    assert "Forbidden" in ended.err
    special = two.run("kubectl", "label", "node", "two", "node-restriction.kubernetes.io/x=1", env=mine, check=False)
    assert "is not allowed to modify labels" in special.err


def test_a_hub_restores_its_peers_after_a_power_failure(tenant: Tenant) -> None:
    serving = tenant.serving
    serving.cut_power()
    serving.boot()
    serving.ready()
    tenant.require_peers()
    for machine in (tenant.bed["two"], tenant.bed["three"]):  # they notice that there is no answer, and start again
        eventually(lambda machine=machine: _answers(machine), f"the hub to answer {machine.name} in the VPN")


def test_a_kubelet_renews_the_certificate_from_the_hub_if_the_cluster_allows_it(tenant: Tenant) -> None:
    one, three = tenant.one, tenant.bed["three"]
    [given] = [row["certificates"] for row in tenant.records() if row["node"] == "four"]
    serials = {row["serial"] for row in given}

    def renewed(kind: str) -> bool:
        """Approve what waits, because nobody approves requests for serving certificates, and look for another certificate."""
        if waiting := _undecided(one, "four"):
            administer(one, "certificate", "approve", *waiting)
        return _serial(three, kind) not in {"", *serials}

    eventually(lambda: bool(_undecided(one, "four")), "a request that nobody has approved")
    for kind in ("client", "server"):
        eventually(lambda kind=kind: renewed(kind), f"another certificate of the {kind} side")
    assert "and Ready" in tenant.join(three, "--nodename=four").out
    eventually(lambda: tenant.ready("four"), "the Node to be Ready")
    assert {row["ends"] for row in tenant.records()} == {""}


def _undecided(one: Machine, node: str) -> list[str]:
    """Return the requests of a node for serving certificates that were neither approved nor denied."""
    found = kubectl(one, "get", "csr").get("items", [])
    rows = [row for row in found if row["spec"]["signerName"] == "kubernetes.io/kubelet-serving" and not row["status"].get("conditions")]
    return [row["metadata"]["name"] for row in rows if row["spec"]["username"] == f"system:node:{node}"]


def _serial(machine: Machine, kind: str) -> str:
    found = machine.run("cat", f"/var/lib/kubelet/pki/kubelet-{kind}-current.pem", check=False).out
    return f"{certificates.first(found.encode(), source=kind).serial:x}" if found else ""


def test_the_interface_is_removed_with_its_cluster(tenant: Tenant) -> None:
    assert len(peers(tenant.serving, INTERFACE)) == 2
    tenant.hub("cluster", "remove", "a")
    eventually(lambda: addresses(tenant.serving, INTERFACE) == [], f"{INTERFACE} to go")
    unit = f"/etc/systemd/system/{INTERFACE}.service"
    eventually(lambda: tenant.serving.run("ls", unit, check=False).code != 0, "its unit to go")


def test_a_reset_restores_the_state_of_the_packaged_unit(tenant: Tenant) -> None:
    three = tenant.bed["three"]
    assert tenant.units["three"][1] == "disabled"
    assert _service(three) != tenant.units["three"]
    said = kubewright(three, "reset", "--force").out
    assert "Restoring the kubelet service, as it was before: disabled" in said
    assert _service(three) == tenant.units["three"]
    assert addresses(three, "oi-wg") == []
    assert three.run("find", "/etc/oneinfra", "/var/lib/kubewright", "-type", "f", check=False).out == ""
