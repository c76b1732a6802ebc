"""WireGuard interfaces: the input and output of `wg` and `ip`, comparison, and the order of changes."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import HostError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.host.desired import Tunnel, TunnelKey, TunnelPeer
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.programs import tunnel_guard, tunnels
from kubewright.host.programs.commands import Ended
from kubewright.host.programs.tunnels import RealTunnels
from kubewright.host.real import RealHost
from kubewright.host.states import TunnelPeerState, TunnelState
from kubewright.pki import wireguard

RANDOM = SeededRandom(1)
KEY = wireguard.new_private_key(RANDOM)
PEERS = tuple(
    TunnelPeer(public_key=wireguard.public_key(wireguard.new_private_key(RANDOM)), networks=(f"10.64.0.{number}/32", f"fd00::{number}/128"))
    for number in (2, 3)
)
DESIRED = Tunnel(
    name="wg-a", private_key=KEY, port=51820, addresses=("10.64.0.1/16", "fd00::1/64"), mtu=1420, peers=PEERS, outside=("10.0.0.1/32",)
)
FOUND = TunnelState(
    private_key=KEY,
    port=51820,
    addresses=frozenset(DESIRED.addresses),
    mtu=1420,
    up=True,
    forwards=True,
    guard=tunnel_guard.mark("wg-a", ("10.0.0.1/32",)),
    peers=tuple(TunnelPeerState(public_key=peer.public_key, networks=frozenset(peer.networks)) for peer in reversed(PEERS)),
)


class Programs:
    """All programs exist except for the named ones."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing

    def path(self, name):
        return None if name in self.missing else PurePosixPath("/usr/bin") / name

    def version(self, name):
        return name


class Kernel:
    """Simulates `ip` and `wg`, as far as needed."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.texts: list[str] = []
        self.links: dict[str, dict] = {}
        self.dump = ""
        self.refuses = ""
        self.table = ""

    def run(self, argv, /, *, within, text=""):
        self.texts += [text] if text else []
        words = [word for word in argv if word != "-json"]
        if words[0] == self.refuses:
            return Ended(code=1, err="Operation not permitted")
        if words[1:3] == ["address", "show"]:
            link = self.links.get(words[4])
            return Ended(code=0, out=json.dumps([{}, link])) if link else Ended(code=1, err=f'Device "{words[4]}" does not exist.')
        if words[:3] == ["nft", "list", "table"]:
            return Ended(code=0, out=self.table) if self.table else Ended(code=1, err="No such file or directory")
        if words[:2] == ["wg", "show"]:
            return Ended(code=0, out=self.dump)
        self.done.append(" ".join(words))
        return Ended(code=0)


@pytest.fixture
def kernel():
    return Kernel()


@pytest.fixture
def real(kernel, tmp_path):
    for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        path = tmp_path / "proc" / "sys" / "net" / name
        path.parent.mkdir(parents=True)
        path.write_text("0\n")
    return RealTunnels(kernel, programs=Programs(), proc=tmp_path / "proc")


def dump(*peers: str) -> str:
    return "\n".join([f"{KEY}\tPUBLIC\t51820\toff", *peers]) + "\n"


LINK = {
    "ifname": "wg-a", "flags": ["POINTOPOINT", "NOARP", "UP"], "mtu": 1420,
    "addr_info": [
        {"family": "inet", "local": "10.64.0.1", "prefixlen": 16, "scope": "global"},
        {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "desired", "action", "reason"),
    [
        (None, DESIRED, Action.CREATE, "10.64.0.1/16, fd00::1/64; 2 peers"),
        (FOUND, DESIRED, Action.NONE, ""),
        (replace(FOUND, private_key="other"), DESIRED, Action.UPDATE, "another key"),
        (replace(FOUND, port=1), DESIRED, Action.UPDATE, "port 1"),
        (replace(FOUND, addresses=frozenset()), DESIRED, Action.UPDATE, "addresses none"),
        (replace(FOUND, mtu=1280), DESIRED, Action.UPDATE, "MTU 1280"),
        (replace(FOUND, up=False), DESIRED, Action.UPDATE, "down"),
        (replace(FOUND, forwards=False), DESIRED, Action.UPDATE, "no forwarding"),
        (replace(FOUND, guard="other"), DESIRED, Action.UPDATE, "other rules"),
        (replace(FOUND, device=False), DESIRED, Action.UPDATE, "no device"),
        (replace(FOUND, peers=FOUND.peers[:1]), DESIRED, Action.UPDATE, "1 new peer"),
        (FOUND, replace(DESIRED, peers=()), Action.UPDATE, "2 surplus peers"),
        (FOUND, replace(DESIRED, peers=(replace(PEERS[0], networks=("10.64.0.9/32",)), PEERS[1])), Action.UPDATE, "1 changed peer"),
        (FOUND, replace(DESIRED, peers=(replace(PEERS[0], keepalive=20), PEERS[1])), Action.UPDATE, "1 changed peer"),
    ],
)
def test_only_differences_of_an_interface_are_changed(found, desired, action, reason):
    change = tunnels.decide(found, desired)
    assert (change.target, change.action, change.reason) == ("tunnel wg-a", action, reason)
    assert KEY not in repr(change) + repr(found) + repr(desired)


def test_a_new_interface_is_created_and_its_key_passed_on_stdin(real, kernel, tmp_path):
    real.apply(DESIRED, None)
    assert kernel.done == [
        "nft -f /dev/stdin",
        "ip link add dev wg-a type wireguard",
        "wg syncconf wg-a /dev/stdin",
        "ip address replace 10.64.0.1/16 dev wg-a",
        "ip address replace fd00::1/64 dev wg-a",
        "ip link set dev wg-a mtu 1420 up",
    ]
    assert kernel.texts == [tunnel_guard.rules("wg-a", ("10.0.0.1/32",)), tunnels.configuration(DESIRED)]
    text = kernel.texts[1]
    assert text.count("[Peer]") == 2
    assert f"PrivateKey = {KEY}" in text
    for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        assert (tmp_path / "proc" / "sys" / "net" / name).read_text() == "1\n"


@pytest.mark.parametrize(
    ("found", "commands"),
    [
        (
            {"addresses": frozenset({"10.9.9.9/24", "10.64.0.1/16"})},
            ["ip address delete 10.9.9.9/24 dev wg-a", "ip address replace fd00::1/64 dev wg-a"],
        ),
        ({"up": False}, ["ip link set dev wg-a mtu 1420 up"]),
        ({"mtu": 1280}, ["ip link set dev wg-a mtu 1420 up"]),
        ({"peers": ()}, ["wg syncconf wg-a /dev/stdin"]),
        ({"port": 1}, ["wg syncconf wg-a /dev/stdin"]),
        ({"private_key": "other"}, ["wg syncconf wg-a /dev/stdin"]),
        ({"guard": ""}, ["nft -f /dev/stdin"]),
    ],
)
def test_differences_of_an_existing_interface_are_corrected(real, kernel, found, commands):
    real.apply(DESIRED, replace(FOUND, **found))
    assert kernel.done == commands


def test_rules_left_by_a_removed_interface_are_removed(real, kernel):
    kernel.table = tunnel_guard.rules("wg-a", ())
    found = real.state("wg-a")
    assert (found.device, found.up) == (False, False)
    real.remove("wg-a", found)
    assert kernel.done == ["nft delete table inet kubewright-wg-a"]
    kernel.done.clear()
    real.apply(DESIRED, found)
    assert kernel.done[:2] == ["nft -f /dev/stdin", "ip link add dev wg-a type wireguard"]


def test_an_interface_is_removed_with_its_rules(real, kernel):
    real.remove("wg-a", FOUND)
    assert kernel.done == ["ip link delete dev wg-a", "nft delete table inet kubewright-wg-a"]


@given(st.lists(st.ip_addresses().map(lambda address: f"{address}/{address.max_prefixlen}"), max_size=5))
def test_rules_are_recognised_by_their_mark(outside):
    text = tunnel_guard.rules("wg-a", outside)
    assert tunnel_guard.found_mark(text) == tunnel_guard.mark("wg-a", outside)
    assert text.count(" daddr ") == len(outside)
    assert tunnel_guard.mark("wg-b", outside) != tunnel_guard.mark("wg-a", outside) != tunnel_guard.mark("wg-a", [*outside, "10.0.0.0/8"])
    lines = [line.strip() for line in text.splitlines()]
    assert lines.index("drop") > lines.index("ct state established,related accept") > lines.index('oifname "wg-a" accept')


def test_foreign_rules_have_no_mark(real, kernel):
    kernel.links["wg-a"], kernel.dump, kernel.table = LINK, dump(), "table inet kubewright-wg-a {\n}\n"
    assert (tunnel_guard.found_mark(kernel.table), real.state("wg-a").guard) == ("", "foreign")


def test_existing_interfaces_are_read(real, kernel, tmp_path):
    assert real.state("wg-a") is None
    kernel.links["wg-a"] = LINK
    kernel.dump = dump("K1\t(none)\t10.0.0.9:4\t10.64.0.2/32,fd00::2/128\t1700000000\t1\t2\t20", "K2\t(none)\t(none)\t(none)\t0\t0\t0\toff")
    found = real.state("wg-a")
    assert (found.private_key, found.port, found.mtu, found.up, found.addresses) == (KEY, 51820, 1420, True, frozenset({"10.64.0.1/16"}))
    assert found.peers == (
        TunnelPeerState(public_key="K1", networks=frozenset({"10.64.0.2/32", "fd00::2/128"}), keepalive=20, handshake=1.7e9),
        TunnelPeerState(public_key="K2", networks=frozenset()),
    )
    assert not found.forwards
    (tmp_path / "proc" / "sys" / "net" / "ipv4" / "ip_forward").write_text("1\n")
    assert real.state("wg-a").forwards


def test_a_machine_without_the_ip_program_has_no_interface(kernel, tmp_path):
    assert RealTunnels(kernel, programs=Programs("ip"), proc=tmp_path).state("wg-a") is None


@pytest.mark.parametrize("told", ["", "x", "a\tb\tc\td\n", f"{KEY}\tP\t1\toff\nshort\n"])
def test_invalid_output_of_wg_is_an_error_that_names_the_interface(real, kernel, told):
    kernel.links["wg-a"] = LINK
    kernel.dump = told
    with pytest.raises(HostError, match="the tunnel wg-a cannot be read"):
        real.state("wg-a")


@given(st.text())
def test_any_text_is_read_as_a_dump_or_refused(text):
    with suppress(ValueError):
        tunnels.read_dump(text)
    with suppress(ValueError):
        tunnels.read_link(text)


@given(
    st.lists(
        st.tuples(st.binary(min_size=32, max_size=32), st.integers(2, 250), st.integers(0, 600)),
        max_size=20,
        unique_by=(lambda row: row[0], lambda row: row[1]),
    )
)
def test_each_peer_is_written_once_and_read_back_unchanged(rows):
    peers = tuple(
        TunnelPeer(public_key=base64.b64encode(raw).decode(), networks=(f"10.64.0.{last}/32",), keepalive=seconds)
        for raw, last, seconds in rows
    )
    text = tunnels.configuration(replace(DESIRED, peers=peers))
    assert text.count("[Peer]\n") == len(peers)
    printed = dump(*(f"{one.public_key}\t(none)\t(none)\t{','.join(one.networks)}\t0\t0\t0\t{one.keepalive or 'off'}" for one in peers))
    _, _, found = tunnels.read_dump(printed)
    assert tunnels.peer_differences(replace(FOUND, peers=found), replace(DESIRED, peers=peers)) == []


def test_a_failing_command_is_reported_with_its_output(real, kernel):
    kernel.refuses = "wg"
    with pytest.raises(HostError, match="`wg syncconf wg-a /dev/stdin` failed") as told:
        real.apply(DESIRED, None)
    assert told.value.detail == "Operation not permitted"
    assert KEY not in str(told.value) + told.value.detail


def test_a_setting_that_cannot_be_changed_is_reported(kernel, tmp_path):
    with pytest.raises(HostError, match=r"net\.ipv4\.ip_forward cannot be set") as told:
        RealTunnels(kernel, programs=Programs(), proc=tmp_path).apply(DESIRED, None)
    assert "sysctl -w net.ipv4.ip_forward=1" in told.value.remedy


@pytest.mark.parametrize(
    ("files", "there"),
    [
        ({}, False),
        ({"sys/module/wireguard/version": ""}, True),
        ({"proc/sys/kernel/osrelease": "6.1\n", "lib/modules/6.1/modules.builtin": "kernel/drivers/net/wireguard/wireguard.ko\n"}, True),
        ({"proc/sys/kernel/osrelease": "6.1\n", "lib/modules/6.1/modules.dep": "kernel/drivers/net/wireguard/wireguard.ko.xz: x\n"}, True),
        ({"proc/sys/kernel/osrelease": "6.1\n", "lib/modules/6.2/modules.dep": "kernel/drivers/net/wireguard/wireguard.ko: x\n"}, False),
    ],
)
def test_wireguard_support_of_the_kernel_is_detected(tmp_path, files, there):
    class Rooted(Files):
        def read(self, path, /):
            return super().read(PurePosixPath(f"{tmp_path}{path}"))

        def state(self, path, /):
            return super().state(PurePosixPath(f"{tmp_path}{path}"))

    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert tunnels.in_kernel(Rooted()) is there


@pytest.mark.parametrize(("missing", "package"), [("wg", "wireguard-tools"), ("ip", "iproute2"), ("wireguard-go", "wireguard-go")])
def test_missing_programs_are_reported_with_their_package(tmp_path, missing, package):
    class Bare(Files):
        def read(self, path, /):
            return None

        def state(self, path, /):
            return None

    with pytest.raises(HostError, match=f"{missing} is not installed") as told:
        tunnels.find_programs(Bare(), Programs(missing))
    assert f"install the package {package}" in told.value.remedy


def test_a_plan_has_the_interface_without_creating_it(tmp_path):
    base = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={"PATH": str(tmp_path)})
    plan = OverlayHost(base)
    assert plan.tunnel("wg-a") is None
    assert [plan.ensure(DESIRED).action for _ in range(2)] == [Action.CREATE, Action.NONE]
    assert [plan.remove_tunnel("wg-a").action for _ in range(2)] == [Action.DELETE, Action.NONE]
    assert base.tunnel("wg-a") is None
    assert list(Path(tmp_path).iterdir()) == []


def test_a_new_key_of_an_interface_is_passed_on_stdin_and_not_set_in_a_plan(real, kernel, tmp_path):
    wanted = TunnelKey(name="wg-a", private_key="other")
    assert [tunnels.decide_key(replace(FOUND, private_key=key), wanted).action for key in (KEY, "other")] == [Action.UPDATE, Action.NONE]
    real.set_key(wanted)
    assert (kernel.done, kernel.texts) == (["wg set wg-a private-key /dev/stdin"], ["other\n"])
    assert "other" not in repr(wanted)
    base = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={"PATH": str(tmp_path)})
    plan = OverlayHost(base)
    with pytest.raises(HostError, match="the interface wg-a does not exist") as told:
        plan.ensure(wanted)
    assert "systemctl restart wg-a" in told.value.remedy
    plan.ensure(DESIRED)
    assert [plan.ensure(wanted).action for _ in range(2)] == [Action.UPDATE, Action.NONE]
    assert plan.tunnel("wg-a").private_key == "other"


def test_peers_are_changed_by_one_command_with_removals_first(real, kernel):
    real.set_peers("wg-a", PEERS, ("GONE",))
    [command] = kernel.done
    assert command.startswith("wg set wg-a peer GONE remove peer ")
    assert command.count(" allowed-ips ") == 2
    kernel.done.clear()
    real.set_peers("wg-a", tuple(TunnelPeer(public_key=f"K{number}", networks=()) for number in range(250)), ())
    assert [one.count(" peer ") for one in kernel.done] == [100, 100, 50]


def test_changes_of_peers_are_reported_and_planned(tmp_path):
    plan = OverlayHost(RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={"PATH": str(tmp_path)}))
    with pytest.raises(HostError, match="the interface wg-a does not exist"):
        plan.set_peers("wg-a", peers=PEERS, without=())
    plan.ensure(replace(DESIRED, peers=()))
    done = [plan.set_peers("wg-a", peers=PEERS, without=()), plan.set_peers("wg-a", peers=(), without=(PEERS[0].public_key,))]
    assert [one.reason for one in (*done, plan.set_peers("wg-a", peers=(), without=()))] == ["2 peers put", "1 peer removed", ""]
    assert [peer.public_key for peer in plan.tunnel("wg-a").peers] == [PEERS[1].public_key]
    assert plan.ensure(replace(DESIRED, peers=PEERS[1:])).action is Action.NONE


def test_a_peer_without_networks_can_send_but_receives_nothing():
    text = tunnels.configuration(replace(DESIRED, peers=(TunnelPeer(public_key="P", networks=()),)))
    assert ("PublicKey = P" in text, "AllowedIPs" in text) == (True, False)


def test_keys_have_one_form():
    private = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")  # RFC 7748, section 6.1
    public = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    good = base64.b64encode(public).decode()
    assert wireguard.public_key(base64.b64encode(private).decode()) == good
    assert wireguard.is_key(good)
    loose = good[:42] + "p="  # the last bits are not zero
    for bad in ("", good[:-1], f"{good}=", good.rstrip("="), "A" * 43 + "=", loose, "é" * 44):
        assert not wireguard.is_key(bad), bad
