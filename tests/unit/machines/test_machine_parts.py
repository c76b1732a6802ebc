"""The pure parts of whole machines: addresses, routes, names, locks and the host's settings."""

from __future__ import annotations

import ipaddress
import os
import sys
import threading
from pathlib import Path

import pytest

from busy import HANGS
from kubewright.base.clock import SystemClock
from kubewright.base.errors import BinariesError, HostError
from kubewright.base.events import Event, Waiting
from kubewright.binaries import BinarySources
from kubewright.binaries.files import cache_lock
from kubewright.machines import base, host, parts, program
from kubewright.machines.group import bridge_of
from kubewright.machines.machine import container_name
from kubewright.machines.network import MOST, POD_SUBNET, Network, free_local_range, free_range, listed, overlapping, range_of, routed
from kubewright.machines.places import cache, locked, making

NETWORK = Network(bridge="kwab12", ranges=("172.31.7.0/24",))
DUAL = Network(bridge="kwab12", ranges=("fd12::/64", "172.31.7.0/24"), pods=("fd00:244::/56", POD_SUBNET))


def test_a_machine_has_the_addresses_of_its_index() -> None:
    assert (NETWORK.gateway, NETWORK.address(1), NETWORK.address(MOST)) == ("172.31.7.1", "172.31.7.11", "172.31.7.210")
    assert (NETWORK.shares(1), NETWORK.shares(MOST)) == (("10.244.1.0/24",), ("10.244.200.0/24",))
    assert NETWORK.namespace(3) == "kwab12-3"
    assert (DUAL.gateway, DUAL.gateways, DUAL.address(1)) == ("fd12::1", ("fd12::1", "172.31.7.1"), "fd12::b")
    assert DUAL.addresses(51) == ("fd12::3d", "172.31.7.61")
    assert DUAL.shares(51) == ("fd00:244:0:33::/64", "10.244.51.0/24")
    assert len(DUAL.spare()) == 2 * len(NETWORK.spare())
    assert {range_of(address) for address in DUAL.addresses(51)} == set(DUAL.ranges)


def test_containers_of_long_names_differ() -> None:
    group, cluster = "kw-01234567", "c" * 40
    names = {container_name(group, f"{cluster}-control-plane-{number}") for number in (2, 3, 11)}
    assert (len(names), {name.startswith(f"{group}-") for name in names}, max(map(len, names))) == (3, {True}, 64)
    assert container_name(group, "dev-worker-1") == "kw-01234567-dev-worker-1"


def test_links_of_other_types_are_not_listed() -> None:
    assert listed('[{},{"ifname":"kwab12"},{}]') == [{"ifname": "kwab12"}]
    assert listed("") == listed("[{},{}]") == []


def test_names_of_links_fit_the_kernel_and_differ_by_group() -> None:
    bridges = {bridge_of(name) for name in ("tests", "tests.2", "kw-0123456789abcdef")}
    assert len(bridges) == 3
    assert all(len(f"{bridge}v{MOST}") <= 15 for bridge in bridges)


@pytest.mark.parametrize(
    ("taken", "found"),
    [
        ([], "172.30.0.0/24"),
        (["172.30.0.0/24", "172.30.1.128/25"], "172.30.2.0/24"),
        (["172.30.0.0/16"], "172.31.0.0/24"),
        (["172.16.0.0/12"], "192.168.0.0/24"),
        (["172.16.0.0/12", "192.168.0.0/16"], "10.200.0.0/24"),
        (["172.30.0.7/32"], "172.30.1.0/24"),
        (["172.30.0.2", "2001:db8::53"], "172.30.1.0/24"),  # name servers
    ],
)
def test_a_range_overlaps_no_route_of_the_host(taken: list[str], found: str) -> None:
    assert free_range(taken) == found
    assert overlapping(found, [POD_SUBNET, "10.96.0.0/12"]) == []


def test_a_range_of_ipv6_is_local_and_overlaps_no_route_of_the_host() -> None:
    first = free_local_range("kwab12", [])
    assert ipaddress.ip_network(first).subnet_of(ipaddress.ip_network("fd00::/8"))
    assert free_local_range("kwab12", ["fe80::/64", "10.0.0.0/8"]) == first != free_local_range("kwab13", [])
    second = free_local_range("kwab12", [first])
    assert (overlapping(second, [first]), second.endswith(":1::/64")) == ([], True)


def test_a_host_whose_routes_cover_everything_is_reported() -> None:
    with pytest.raises(HostError, match="no range of addresses is free"):
        free_range(["0.0.0.0/0"])
    with pytest.raises(HostError, match="no range of IPv6 addresses is free"):
        free_local_range("kwab12", ["::/0"])


def test_default_routes_occupy_nothing() -> None:
    rows = [{"dst": "default"}, {"dst": "10.0.0.0/8"}, {"dst": "127.0.0.1", "type": "local"}, {"type": "unreachable"}]
    assert routed([*rows, {"dst": "fe80::/64"}]) == {"10.0.0.0/8", "127.0.0.1/32", "fe80::/64"}
    halves = [{"dst": text} for text in ("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1")]  # of a VPN
    assert routed([*halves, {"dst": "128.0.0.0/2"}]) == {"128.0.0.0/2"}


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("sources.list", "deb [signed-by=/k] http://a.example/debian bookworm main\n", "http://a.example/debian"),
        ("sources.list", "deb http://a.example/debian trixie main\ndeb http://b.example bookworm contrib main\n", "http://b.example"),
        ("sources.list.d/debian.sources", "Types: deb\nURIs: http://c.example\nSuites: bookworm bookworm-updates\n", "http://c.example"),
        ("sources.list.d/ubuntu.sources", "Types: deb\nURIs: http://d.example\nSuites: noble noble-updates\n", ""),
    ],
)
def test_debian_comes_from_the_mirror_of_the_host_if_it_has_one(name: str, text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert base.mirror(tmp_path) == found


def test_host_settings_are_restored_even_after_a_killed_run(tmp_path: Path) -> None:
    record, links = tmp_path / "sysctls.json", [f"net/ipv4/conf/{link}/forwarding" for link in ("all", "eth0", "gone")]
    missing = "kernel/keys/root_maxkeys"  # some kernels have no keys
    settings = [tmp_path / name for name in (*host.SYSCTLS, *links) if name != missing]
    for path in settings:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("0\n")
    host.restore(record, proc=tmp_path)
    host.remember(record, proc=tmp_path)
    for path in settings:
        path.write_text("1\n")
    host.remember(record, proc=tmp_path)  # the next run, which did not see it
    settings.pop().unlink()  # with its link
    host.restore(record, proc=tmp_path)
    changed = [str(path.relative_to(tmp_path)) for path in settings if path.read_text().strip() != "0"]
    assert changed == ["net/ipv4/conf/all/forwarding"]  # the kernel changes it with net/ipv4/ip_forward
    assert not record.exists()


def test_limits_of_the_host_are_raised_and_never_lowered(tmp_path: Path) -> None:
    instances, watches = tmp_path / "fs/inotify/max_user_instances", tmp_path / "fs/inotify/max_user_watches"
    instances.parent.mkdir(parents=True)
    instances.write_text("128\n")
    watches.write_text("1048576\n")
    host.raise_limits(proc=tmp_path)
    assert (instances.read_text(), watches.read_text()) == ("8192", "1048576\n")
    assert {str(path.relative_to(tmp_path)) for path in (instances, watches)} <= set(host.SYSCTLS)  # they are restored


@pytest.mark.parametrize(("present", "left"), [(False, "0"), (True, "1")])
def test_bridges_of_the_host_are_not_filtered_because_of_machines(tmp_path: Path, present: bool, left: str) -> None:
    setting, vlan = (tmp_path / "net" / "bridge" / name for name in ("bridge-nf-call-iptables", "bridge-nf-pass-vlan-input-dev"))

    def load(*_: object) -> None:
        setting.parent.mkdir(parents=True, exist_ok=True)
        for path in (setting, vlan):
            path.write_text("1")

    if present:
        load()
    host.load_modules(proc=tmp_path, load=load)
    assert (setting.read_text(), vlan.read_text()) == (left, "1")


def test_parts_can_be_read_by_all_users_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seen, before = list[int](), os.umask(0o077)

    def noted(**_: object) -> None:
        seen.append(os.umask(0o022))
        raise BinariesError("enough is known")

    monkeypatch.setattr(parts.providing, "ensure_taken", noted)
    try:
        with pytest.raises(BinariesError):
            parts.ensure_parts(sources=BinarySources(cache=tmp_path, allow_download=False))
        assert (seen, os.umask(0o077)) == ([0o022], 0o077)
    finally:
        os.umask(before)


def test_settings_that_change_with_another_one_are_restored_after_it() -> None:
    names = list(host.SYSCTLS)
    assert names.index("net/ipv4/ip_forward") < names.index("net/ipv4/conf/all/accept_redirects")


def test_a_host_that_forwards_ipv6_keeps_routes_that_routers_advertise(tmp_path: Path) -> None:
    record, conf = tmp_path / "sysctls.json", tmp_path / "net" / "ipv6" / "conf"
    values = {"all/forwarding": "0", "eth0/accept_ra": "1", "eth1/accept_ra": "0"}
    paths = [*(tmp_path / name for name in host.SYSCTLS), *(conf / name for name in values)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(values.get(str(path.relative_to(conf)), "0") if path.is_relative_to(conf) else "0")

    def found() -> list[str]:
        return [(conf / name).read_text() for name in values]

    host.remember(record, proc=tmp_path)
    host.forward_ipv6([], proc=tmp_path)
    assert found() == ["0", "1", "0"]
    host.remember(record, uplinks=["eth0", "eth1"], proc=tmp_path)  # another cluster, with IPv6
    host.forward_ipv6(["eth0", "eth1"], proc=tmp_path)
    assert found() == ["1", "2", "0"]
    (conf / "eth1" / "accept_ra").unlink()  # the link has gone
    host.restore(record, proc=tmp_path)
    assert ((conf / "all/forwarding").read_text(), (conf / "eth0/accept_ra").read_text(), record.exists()) == ("0", "1", False)


def test_a_lock_leaves_no_file_and_excludes_others(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "run" / "one.lock", [0], [0]

    def enter() -> None:
        for _ in range(50):
            with locked(path):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert list(tmp_path.iterdir()) == []


def test_an_archive_is_recognized_by_its_interpreter(tmp_path: Path) -> None:
    root = tmp_path / "kubewright"
    (root / "libexec").mkdir(parents=True)
    (root / "share").mkdir()
    assert program.archive_of(str(root / "libexec" / "python3")) is None
    (root / "share" / "CONTENTS").touch()
    assert program.archive_of(str(root / "libexec" / "python3")) == root
    assert program.archive_of(sys.executable) is None


def test_machines_call_the_program_in_the_form_in_which_it_runs_here(tmp_path: Path) -> None:
    archive, environment = program.from_archive(tmp_path), program.from_environment()
    assert (archive.argv, dict(archive.shared)) == (("/opt/kubewright/archive/bin/kubewright",), {"/opt/kubewright/archive": tmp_path})
    assert (*environment.argv[1:], len(environment.shared)) == ("-m", "kubewright", 2)
    assert (environment.shared[environment.environment["PYTHONPATH"]] / "kubewright" / "machines").is_dir()
    packages = program.from_packages(tmp_path)
    assert packages.argv == ("/usr/bin/python3.11", "-m", "kubewright")
    assert packages.environment["PYTHONPATH"].split(":") == list(reversed(packages.shared))


def test_other_clusters_do_not_wait_while_programs_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\n[ $1 = env ] && echo go1.99.0\n")  # it builds nothing, so that the attempt ends
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    others, said = BinarySources(cache=tmp_path / "binaries", allow_download=False), Telling()
    failures: list[BinariesError] = []

    def make() -> None:
        try:
            parts.ensure_parts(sources=others, reporter=said)
        except BinariesError as error:
            failures.append(error)

    with cache_lock(others.cache, task="building kubelet", wait=True, clock=SystemClock(), reporter=said):
        waiting = threading.Thread(target=make)
        waiting.start()
        waits, locks_out = said.waits.wait(HANGS), (cache() / "parts.lock").exists()
    waiting.join(HANGS)
    assert (waits, locks_out, len(failures)) == (True, False, 1)


class Telling:
    """A reporter that tells when something waits."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    def emit(self, event: Event) -> None:
        if isinstance(event, Waiting):
            self.waits.set()


def test_a_part_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "cache" / "kit-1"
    with pytest.raises(ValueError, match="stopped"), making(place) as partial:
        partial.mkdir()
        (partial / "half").touch()
        raise ValueError("stopped")
    assert not place.exists()
    with making(place) as partial:
        partial.mkdir()
        (partial / "whole").touch()
    assert [path.name for path in place.parent.iterdir()] == ["kit-1"]
    assert [path.name for path in place.iterdir()] == ["whole"]
