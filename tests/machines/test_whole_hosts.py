"""Clusters of machines on hosts as users have them: other routes, a firewall, an owner other than root; and hosts that cannot have machines."""

from __future__ import annotations

import io
import ipaddress
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import families_kit
import pytest
import real_pods
from families_kit import NODE_PORT, NODE_PORT_6
from machine_kit import eventually
from whole_kit import Cluster, disk_place, docker_archive, web

import other_user
from kubewright.local.export import machines
from kubewright.local.whole import resolvers
from kubewright.local.whole.services.places import runtime
from kubewright.local.whole.services.programs import socket_of
from kubewright.machines import host, oci
from kubewright.machines.base import place
from kubewright.machines.cgroups import Cgroups
from kubewright.machines.group import bridge_of
from kubewright.machines.network import listed
from kubewright.machines.parts import Parts
from kubewright.machines.places import RUN, locked
from kubewright.machines.running import quietly, run

OWNER, STRANGER = other_user.NOBODY, 64321
HOST_ADDRESS, OUTSIDE = "203.0.113.1", "203.0.113.2"
HOST_ADDRESS_6, OUTSIDE_6 = "2001:db8::1", "2001:db8::2"
VPN: Final = "172.16.0.0/12"
SMALL: Final = 1300
"""The largest packets of the link to the outside."""
SAYS: Final = "from outside\n" * 1000
IMAGE: Final = "docker.io/library/web:docker"
STRICT: Final = "table inet strict { chain forward { type filter hook forward priority 0; policy drop; }; }\n"
PRIVATE: Final = ("sh", "-c", 'umask 077; exec "$@"', "sh")
"""Starts a command of a user whose files nobody else may read."""
CONNECT: Final = "import socket, sys; socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2])).connect(sys.argv[1])"


class VirtualHost:
    """A network namespace as a host: its routes cover 172.16/12, its firewall drops what it forwards, and a server is outside of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.enter = ("nsenter", f"--net=/run/netns/{name}")
        self._outside = f"{name}-out"

    def make(self) -> None:
        for name in (self.name, self._outside):
            run("ip", "netns", "add", name)
            run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.default.disable_ipv6=0")
        run("ip", "-n", self.name, "link", "add", "up0", "type", "veth", "peer", "name", "out0", "netns", self._outside)
        for name, link, four, six in ((self.name, "up0", HOST_ADDRESS, HOST_ADDRESS_6), (self._outside, "out0", OUTSIDE, OUTSIDE_6)):
            commands = (
                f"address add {four}/24 dev {link}",
                f"address add {six}/64 dev {link} nodad",
                f"link set {link} up",
                "link set lo up",
            )
            run("ip", "-n", name, "-batch", "-", text="\n".join(commands) + "\n")
        # large packets from outside get lost in the link, and nobody is told
        run("ip", "-n", self.name, "link", "set", "up0", "mtu", str(SMALL))
        run("ip", "netns", "exec", self._outside, "chroot", str(place()), "ethtool", "-K", "out0", "tso", "off", "gso", "off")
        for target, gateway in (("default", OUTSIDE), (VPN, OUTSIDE), ("default", OUTSIDE_6)):
            run("ip", "-n", self.name, "-6" if ":" in gateway else "-4", "route", "add", target, "via", gateway)
        self.nft("-f", "-", text=STRICT)

    def nft(self, *words: str, text: str = "") -> str:
        return run(*self.enter, "chroot", str(place()), "nft", *words, text=text)

    def links(self) -> list[str]:
        return [row["ifname"] for row in listed(run("ip", "-n", self.name, "-j", "link", "show"))]

    def outside(self, *words: str) -> list[str]:
        """Return the arguments that run a command outside of the host."""
        return ["ip", "netns", "exec", self._outside, *words]

    def remove(self) -> None:
        quietly(*(["ip", "netns", "delete", name] for name in (self.name, self._outside)))


@contextmanager
def settings_kept() -> Iterator[None]:
    """Claim a machine that never starts: clusters on a virtual host would otherwise restore this host's settings to that one."""
    held = Cgroups(f"t{os.getpid()}-held_one")
    host.prepare([held], forwarding=True)
    with locked(RUN / "sysctls.lock"):
        host.remember(RUN / "sysctls.json", uplinks=["lo"])  # those of IPv6
    try:
        yield
    finally:
        held.remove()
        host.release()


@pytest.fixture
def virtual(parts: Parts) -> Iterator[VirtualHost]:
    found = VirtualHost(f"t{os.getpid()}-host")
    with settings_kept(), ExitStack() as stack:
        stack.callback(found.remove)
        found.make()
        yield found


@pytest.fixture
def cluster(virtual: VirtualHost, readable: Path) -> Iterator[Cluster]:
    """A cluster on that host, which does not exist yet. Its directory is that of an ordinary user."""
    with disk_place() as state:
        directory = readable / "clusters"
        found = Cluster(f"h{os.getpid()}", state, directory=directory, before=(*virtual.enter, *PRIVATE))
        found.paths.root.mkdir(mode=0o700, parents=True)
        for path in (directory, found.paths.root):
            os.chown(path, OWNER, OWNER)
        try:
            yield found
        finally:
            found.down()


def test_a_cluster_of_a_user_on_a_host_with_a_vpn_and_a_firewall(
    cluster: Cluster, virtual: VirtualHost, parts: Parts, readable: Path
) -> None:
    rules, links = virtual.nft("-s", "list", "ruleset"), virtual.links()
    (readable / "kubeadm.yaml").write_text(f"{families_kit.DUAL}---\n{real_pods.CONFIG}")
    given = ("--config", str(readable / "kubeadm.yaml"), "--mount", real_pods.write_patches(readable / "patches"))
    ports = ("--publish", f"8080:{NODE_PORT}", "--publish", f"8083:{NODE_PORT_6}")
    made = cluster.up("--machines", "--nodes", "1", *ports, *given)
    machine, worker = (one["name"] for one in made["machines"])
    assert [one["name"] for one in made["machines"] if ipaddress.ip_address(one["address"]) in ipaddress.ip_network(VPN)] == []

    # what `docker save` writes, from standard input
    archive = docker_archive(web(parts, readable / "oci.tar"), readable / "docker.tar", IMAGE)
    with archive.open("rb") as file:
        process = cluster.start("local", "load", "--name", cluster.name, "-", stdin=file, stdout=subprocess.PIPE)
        assert process.communicate()[0] == f"loaded {IMAGE}\n"
    check_layers(cluster)
    families_kit.run_workload(cluster, IMAGE)
    real_pods.start_pods(cluster)
    families_kit.check_both(cluster, made, enter=virtual.enter)

    (readable / "www").mkdir()
    (readable / "www" / "said").write_text(SAYS)
    server = subprocess.Popen(
        virtual.outside(sys.executable, "-m", "http.server", "--bind", "::", "--directory", str(readable / "www"), "8000")
    )
    try:
        reaches_outside(cluster)  # nothing outside has a route to the cluster
        virtual.nft("flush", "chain", "inet", "strict", "forward")  # the firewall is reloaded
        reaches_outside(cluster)
    finally:
        server.kill()
        server.wait(600)
    assert bridge_of(cluster.group) in virtual.nft("list", "chain", "inet", "strict", "forward")

    # published ports are for this host alone, unless they have another address
    cluster.call("local", "publish", "--name", cluster.name, "--address", HOST_ADDRESS, f"8081:{NODE_PORT}")
    fetch = ("curl", "-sS", "--max-time", "20")
    eventually(lambda: output(*virtual.enter, *fetch, "http://127.0.0.1:8080") == "real\n", "the published port")
    eventually(lambda: output(*virtual.enter, *fetch, "http://127.0.0.1:8083") == "real\n", "the published port of a Service of IPv6")
    eventually(lambda: output(*virtual.outside(*fetch, f"http://{HOST_ADDRESS}:8081")) == "real\n", "the port that others may reach")
    assert output(*virtual.outside(*fetch, f"http://{HOST_ADDRESS}:8080")) == ""

    # the umask of the caller does not apply to machines
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert cluster.inside("control-plane", *as_nobody, "cat", "/etc/resolv.conf").stdout == resolvers.of_host().text(ipv6=True)
    real_pods.check_documents(cluster, [worker])
    real_pods.check_pods(cluster)
    assert cluster.up()["changes"] == []
    check_hostile_archive(cluster, readable)
    check_logs(cluster, machine)
    check_access(cluster, virtual, readable, machine)
    cluster.down()
    assert cluster.traces() == []
    assert (virtual.nft("-s", "list", "ruleset"), virtual.links()) == (rules, links)
    assert bridge_of(cluster.group) not in run("ip", "-n", virtual.name, "-6", "route", "show", "table", "all")
    assert [*(readable / "clusters").iterdir()] == []


def check_layers(cluster: Cluster) -> None:
    """An image keeps its configuration; its layers are not needed any more once they are unpacked."""
    ctr = ("ctr", "-n", "k8s.io")
    [row] = cluster.inside("control-plane", *ctr, "images", "list", f"name=={IMAGE}").stdout.splitlines()[1:]
    digest = next(word for word in row.split() if word.startswith("sha256:"))
    [labels] = [line for line in cluster.inside("control-plane", *ctr, "content", "list").stdout.splitlines() if line.startswith(digest)]
    assert ("gc.ref.content.config" in labels, "gc.ref.content.l." in labels) == (True, False)


def reaches_outside(cluster: Cluster) -> None:
    """The pod reaches a server by either family. Its image has no client that knows IPv6."""
    fetch = 'exec nsenter -t "$(pidof -s httpd)" -n curl -gsm 5 --noproxy "*" "$0"'
    for address in (OUTSIDE, f"[{OUTSIDE_6}]"):
        words = ("sh", "-c", fetch, f"http://{address}:8000/said")
        eventually(lambda words=words: cluster.inside("control-plane", *words, check=False).stdout == SAYS, f"the server at {address}")


def check_hostile_archive(cluster: Cluster, directory: Path) -> None:
    """Files of an image stay in the image, whatever their paths are."""
    name, stream = f"evil-{os.getpid()}", io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as layer:
        oci.add_link(layer, "trap", "/etc")
        for path in (f"../../../../../../../../{name}", f"/{name}", f"trap/{name}"):
            oci.add(layer, path, b"evil")
    config = {"architecture": "amd64", "os": "linux", "config": {}}
    oci.write(directory / "evil.tar", reference="docker.io/library/evil:1", layer=stream.getvalue(), config=config)
    cluster.call("local", "load", "--name", cluster.name, str(directory / "evil.tar"), check=False)
    places = ["/", "/etc", "/var/lib/containerd", "/var/lib"]
    found = cluster.inside("control-plane", "find", *places, "-maxdepth", "1", "-name", name).stdout.split()
    assert found + [place for place in places if (Path(place) / name).exists()] == []


def check_logs(cluster: Cluster, machine: str) -> None:
    """`local logs` shows the logs of static pods, of units and of the daemon."""

    def shown(*words: str) -> list[str]:
        return cluster.call("local", "logs", "--name", cluster.name, *words).stdout.splitlines()

    assert len(shown("kube-apiserver", "--tail", "5")) == 5
    assert any(line.startswith(("I", "W")) for line in shown("kube-apiserver"))  # klog's, without what the runtime writes before them
    assert len(shown("kubelet", "--machine", machine, "--tail", "3")) >= 3
    shown()  # the daemon has had nothing to report
    unknown = cluster.call("local", "logs", "--name", cluster.name, "cloud-controller-manager", check=False)
    assert unknown.returncode == 2
    assert "kubelet, containerd, etcd, kube-apiserver, kube-controller-manager, kube-scheduler" in unknown.stderr


def check_access(cluster: Cluster, virtual: VirtualHost, readable: Path, machine: str) -> None:
    """The owner uses the cluster without root. Nobody else gets keys, sockets and machines."""
    library, home = readable / "library", readable / "home"
    library.mkdir()
    home.mkdir()
    os.chown(home, OWNER, OWNER)
    environment = {"PATH": os.environ["PATH"], "HOME": str(readable), "PYTHONPATH": other_user.library(OWNER, library)}
    python = other_user.python(OWNER)

    def called(uid: int, *words: str, **streams: Any) -> subprocess.CompletedProcess[str]:
        argv = [*virtual.enter, "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *words]
        return subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, check=False, **streams)

    def kubewright(uid: int, *words: str, **streams: Any) -> subprocess.CompletedProcess[str]:
        end = words.index("--") if "--" in words else len(words)
        words = (*words[:end], "--state-dir", str(readable / "clusters"), *words[end:])
        return called(uid, python, "-P", "-m", "kubewright", *words, **streams)

    status = kubewright(OWNER, "local", "status", cluster.name, "-o", "json")
    assert json.loads(status.stdout)["state"] == "Ready", status.stderr
    published = kubewright(OWNER, "local", "publish", "--name", cluster.name, f"8082:{NODE_PORT}", "-o", "json")
    assert [row["listens"] for row in json.loads(published.stdout)["ports"]] == [True] * 4, published.stderr
    assert len(kubewright(OWNER, "local", "publish", "--name", cluster.name, "--list").stdout.splitlines()) == 5
    assert f"export KUBECONFIG={cluster.paths.admin_kubeconfig(machine)}\n" in kubewright(OWNER, "local", "env", cluster.name).stdout
    with (readable / "oci.tar").open("rb") as file:
        loaded = kubewright(OWNER, "local", "load", "--name", cluster.name, "-", stdin=file)
    assert loaded.stdout == "loaded docker.io/library/web:dev\n", loaded.stderr
    inside = kubewright(OWNER, "local", "shell", machine, "--", "sh", "-c", "id -u; hostname; umask; cat; exit 3", input="typed\n")
    assert (inside.stdout, inside.returncode) == (f"0\n{machine}\n0022\ntyped\n", 3), inside.stderr
    pods = kubewright(OWNER, "local", "shell", machine, "--", "kubectl", "get", "pods", "-o", "name")
    assert len([line for line in pods.stdout.splitlines() if line.startswith("pod/web-")]) == 2, pods.stderr
    for words in (("kubelet", "--tail", "3"), ("kube-apiserver", "--tail", "3")):
        shown = kubewright(OWNER, "local", "logs", "--name", cluster.name, *words)
        assert (shown.returncode, len(shown.stdout.splitlines()) >= 3) == (0, True), shown.stderr
    assert kubewright(OWNER, "local", "logs", "--name", cluster.name).returncode == 0
    check_export(kubewright(OWNER, "local", "export", "--name", cluster.name, str(home / "report"), "-o", "json"), machine)
    refused = kubewright(OWNER, "local", "machine", "remove", machine)
    assert (refused.returncode, "only root can add and remove machines" in refused.stderr) == (1, True)
    for verb, said in (("pause", "is paused"), ("start", "runs"), ("kill", "was killed"), ("start", "runs")):
        changed = kubewright(OWNER, "local", "machine", verb, machine)
        assert (changed.returncode, changed.stdout) == (0, f"machine {machine} {said}\n"), changed.stderr
    assert kubewright(STRANGER, "local", "status", cluster.name).returncode != 0

    own = runtime(cluster.paths)
    kubeconfig, console = cluster.paths.admin_kubeconfig(machine), cluster.disks / machine / "console.log"
    readers = {
        path: [uid for uid in (OWNER, STRANGER) if called(uid, "test", "-r", str(path)).returncode == 0]
        for path in (kubeconfig, cluster.paths.record, cluster.paths.root, own.daemon_log, console, cluster.disks)
    }
    owned = {kubeconfig, cluster.paths.record, cluster.paths.root}
    assert readers == {path: [OWNER] if path in owned else [] for path in readers}
    assert cluster.disks.stat().st_mode & 0o077 == 0
    for path, kind in ((own.socket, "SOCK_STREAM"), (socket_of(own), "SOCK_SEQPACKET")):
        connected = {uid: called(uid, python, "-c", CONNECT, str(path), kind).returncode for uid in (OWNER, STRANGER)}
        assert connected == {OWNER: 0, STRANGER: 1}


def check_export(done: subprocess.CompletedProcess[str], machine: str) -> None:
    """The owner's export contains what only root can read, in files of the owner."""
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    directory = Path(made["directory"])
    assert made["problems"] == []
    assert {path.stat().st_uid for path in (directory, *directory.rglob("*"))} == {OWNER}
    wanted = {"status.json", "cluster.json", "objects/pods.json", *(f"{machine}/{name}" for name in ("console.log", *machines.COMMANDS))}
    assert wanted - set(made["files"]) == set()
    assert [name for name in wanted if not (directory / name).stat().st_size] == []
    assert any(name.startswith(f"{machine}/pods/default_web-") for name in made["files"])


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


WITHOUT: Final = {
    "privileges": ("setpriv", "--bounding-set=-sys_admin,-net_admin"),
    "systemd": ("unshare", "--mount", "sh", "-c", 'umount -R -l /sys/fs/cgroup; exec "$@"', "sh"),
    "the memory controller": ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1"; shift; exec "$@"'),
}
"""Programs that start others on a host without something."""
SAID: Final = {
    "privileges": ("root lacks CAP_NET_ADMIN, CAP_SYS_ADMIN: this is a container without privileges", "--privileged"),
    "systemd": ("no cgroups are mounted", "on WSL set `systemd=true` below [boot] in /etc/wsl.conf"),
    "the memory controller": ("cgroups lack the controllers memory", "add `cgroup_enable=memory` to the kernel's command line and reboot"),
}


@pytest.mark.parametrize("missing", WITHOUT)
def test_a_host_that_lacks_something_is_reported_and_not_changed(parts: Parts, missing: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        before = [*WITHOUT[missing], *(without_memory(Path(directory)) if missing == "the memory controller" else ())]
        refused = Cluster(f"r{os.getpid()}", Path(directory) / "state", before=before)
        ended = refused.call("up", "--machines", "--name", refused.name, check=False)
        assert (ended.returncode, [text for text in SAID[missing] if text not in ended.stderr]) == (4, []), ended.stderr
        checked = refused.call("preflight", "machines", check=False)
        assert (checked.returncode, [text for text in SAID[missing] if text not in checked.stdout + checked.stderr]) == (4, [])
        assert ((Path(directory) / "state").exists(), refused.traces()) == (False, [])


def without_memory(directory: Path) -> tuple[str, str]:
    """Return a file that says that there is no memory controller, and the one of this host."""
    version_2 = Path("/sys/fs/cgroup/cgroup.controllers")
    real = version_2 if version_2.exists() else Path("/proc/cgroups")
    lines = real.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("memory")] if real.name == "cgroups" else [lines[0].replace("memory ", "")]
    file = directory / "controllers"
    file.write_text("\n".join(kept) + "\n")
    return str(file), str(real)
