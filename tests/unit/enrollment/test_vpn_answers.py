"""What a hub answers about a VPN, to which nodes, and how a node uses it."""

from __future__ import annotations

import ipaddress
from pathlib import PurePosixPath

import pytest
from hub_kit import CLOCK, cluster
from hypothesis import example, given
from hypothesis import strategies as st
from old_peer import OldNode, unlock

import systemd_kit
from kubewright.apis import formats, join_records
from kubewright.apis.kubeconfig import parse, require_usable
from kubewright.base import yaml
from kubewright.base.errors import HostError, TrustError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.hub import issuing
from kubewright.enrollment.node import answer_checks, tunnel_checks
from kubewright.enrollment.node.tunnel_checks import CheckedEnds
from kubewright.enrollment.protocol import answers, decisions, fields, requests
from kubewright.enrollment.protocol.answers import TunnelAnswer
from kubewright.enrollment.protocol.decisions import Issue, Refuse, Seen
from kubewright.enrollment.protocol.fields import MalformedField
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.enrollment.state.clusters import read as read_cluster
from kubewright.enrollment.vpn import network
from kubewright.enrollment.vpn.network import VPN
from kubewright.host.programs.tunnels import TunnelPrograms
from kubewright.manifests import kubelet, tunnels
from kubewright.pki import wireguard
from kubewright.pki.keys import Algorithm, FreshKeys
from kubewright.pki.node_names import NamePolicy

RANDOM = SeededRandom(1)
HUB_KEY, NODE_KEY = wireguard.new_private_key(RANDOM), wireguard.new_private_key(RANDOM)
BOTH = VPN(networks=("10.64.0.0/16", "fd00:64::/64"), endpoint="hub.example:51820", interface="wg-a")
FOUR = replace(BOTH, networks=("10.64.0.0/16",))
SUBNETS = ("10.96.0.0/12", "10.244.0.0/16")
ENDPOINT = "https://10.0.0.1:6443"


def loaded(chosen: VPN) -> LoadedCluster:
    return LoadedCluster(cluster(vpn=chosen, vpn_key=HUB_KEY, key_algorithm=Algorithm.ECDSA_P256.value))


def issued(chosen: VPN, *, key: str, lease=("10.64.0.7", "fd00:64::7")) -> issuing.Issued:
    wanted = JoinRequest(endpoint=ENDPOINT, tunnel_key=key, key=fields.new_key(RANDOM))
    lease = lease[: len(chosen.networks)]
    return issuing.issue(loaded(chosen), "worker", wanted, lease=lease, key_source=FreshKeys(), started=CLOCK.now(), random=SeededRandom(2))


def test_our_nodes_use_their_own_key_and_nodes_of_oneinfra_get_one():
    ours = issued(BOTH, key=wireguard.public_key(NODE_KEY))
    assert ours.answer.tunnel == TunnelAnswer(
        cidr="10.64.0.0/16,fd00:64::/64",
        address="10.64.0.7/16,fd00:64::7/64",
        private_key="",
        endpoint="hub.example:51820",
        endpoint_key=wireguard.public_key(HUB_KEY),
        mtu="1420",
        keepalive="20",
    )
    assert ours.tunnel_key == wireguard.public_key(NODE_KEY)
    stock = issued(BOTH, key="")
    found = stock.answer.tunnel
    assert (found.cidr, found.address, found.mtu, found.keepalive) == ("10.64.0.0/16", "10.64.0.7/16", "", "")
    assert stock.tunnel_key == wireguard.public_key(found.private_key)


def test_the_answer_to_a_node_of_oneinfra_has_its_five_fields():
    node = OldNode("worker", ENDPOINT)
    status = answers.write(issued(FOUR, key="").answer, fields.SymmetricKey(node.key), random=RANDOM)
    found = {name: unlock(text, node.key) for name, text in status["vpn"].items()}
    assert sorted(found) == ["CIDR", "address", "endpoint", "endpointPublicKey", "peerPrivateKey"]
    assert (found["CIDR"], found["address"], found["endpoint"]) == ("10.64.0.0/16", "10.64.0.7/16", "hub.example:51820")
    assert wireguard.public_key(found["peerPrivateKey"]) != found["endpointPublicKey"] == wireguard.public_key(HUB_KEY)


def test_answers_are_read_back_unchanged():
    key = fields.new_key(RANDOM)
    for sent in ("", wireguard.public_key(NODE_KEY)):
        answer = issued(BOTH, key=sent).answer
        assert answers.read(answers.write(answer, key, random=RANDOM), key) == answer


def test_a_serving_certificate_has_the_vpn_addresses():
    answer = issued(BOTH, key=wireguard.public_key(NODE_KEY)).answer
    pair = answer_checks.certificates.pair_of(answer.serving_certificate.encode(), answer.serving_key.encode(), source="it")
    assert (pair.leaf.names.dns, pair.leaf.names.ips) == (("localhost", "worker"), ("127.0.0.1", "::1", "10.64.0.7", "fd00:64::7"))


@pytest.mark.parametrize(("key", "server"), [(wireguard.public_key(NODE_KEY), "https://10.9.9.9:6443"), ("", ENDPOINT)])
def test_only_our_nodes_reach_the_api_server_through_the_tunnel(key, server):
    chosen = replace(FOUR, server="https://10.9.9.9:6443")
    answer = issued(chosen, key=key).answer
    assert require_usable(parse(yaml.load_one(answer.kubeconfig.encode(), source="it"))).cluster.server == server
    assert answer.tunnel.cidr == ("10.64.0.0/16,10.9.9.9/32" if key else "10.64.0.0/16")


def test_valid_keys_in_requests_are_read_and_invalid_ones_refused():
    chosen, node = loaded(FOUR), fields.new_key(RANDOM)
    public = wireguard.public_key(NODE_KEY)

    def sent(key: str):
        wanted = JoinRequest(endpoint=ENDPOINT, tunnel_key=key, key=node)
        return requests.write("worker", wanted, recipient=chosen.recipient, runtime_endpoint="a", image_endpoint="b", random=RANDOM)

    assert requests.read(sent(public), join_key=chosen.join_key).tunnel_key == requests.reread(sent(public), node).tunnel_key == public
    assert "vpnPublicKey" not in sent("")["spec"]
    assert requests.read(sent(""), join_key=chosen.join_key).claims == ()
    with pytest.raises(MalformedField, match="vpnPublicKey is not a WireGuard key"):
        requests.read(sent(public[:-2]), join_key=chosen.join_key)


@pytest.mark.parametrize(("owner", "outcome"), [("", Issue), ("worker", Issue), ("other", Refuse)])
def test_the_key_of_another_node_is_refused(owner, outcome):
    public = wireguard.public_key(NODE_KEY)
    contents = JoinRequest(tunnel_key=public, key=fields.new_key(RANDOM))
    foreign = {join_records.tunnel_key_name(public): owner} if owner else {}
    seen = Seen(name="worker", uid="u", created=None, condition=None, digest="d", contents=contents)
    found = decisions.decide(seen, None, decisions.Policy(names=NamePolicy(foreign=foreign)), CLOCK.now())
    assert isinstance(found, outcome)
    assert not isinstance(found, Refuse) or found.reason == "KeyTaken"


def test_a_cluster_is_read_back_with_its_vpn_and_its_key_is_secret():
    chosen = cluster(vpn=BOTH, vpn_key=HUB_KEY)
    assert HUB_KEY not in repr(chosen.document())
    assert read_cluster(chosen.document(), chosen.secrets()) == chosen
    earlier = {name: value for name, value in cluster().document().items() if name != "vpn"}
    without = {name: value for name, value in cluster().secrets().items() if name != "vpn_key"}
    assert read_cluster(earlier, without) == cluster()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, ""),
        ({"networks": ("10.64.0.0/16", "10.65.0.0/16")}, "one network of each family"),
        ({"networks": ("10.64.0.0/31",)}, "is too small for a node"),
        ({"networks": ("10.100.0.0/16",)}, "10.100.0.0/16 overlaps 10.96.0.0/12, which is for Services or pods"),
        ({"networks": ("10.0.0.0/8",)}, "which is for Services or pods"),
        ({"interface": "wg-much-too-long-a-name"}, "cannot be the name of an interface"),
        ({"interface": "../wg"}, "cannot be the name of an interface"),
        ({"mtu": 1000}, "the MTU is 1000"),
        ({"keepalive": 70000}, "a keepalive of 70000 s"),
        ({"endpoint": "hub.example"}, "has no port"),
        ({"endpoint": "hub.example:0"}, "the port must be a number"),
        ({"endpoint": "HUB_:51820"}, "the host must be"),
        ({"endpoint": "10.64.3.4:51820"}, "is inside the VPN itself"),
        ({"server": "http://10.0.0.1:6443"}, "is not https://ADDRESS:PORT"),
        ({"server": "https://api.example:6443"}, "is not https://ADDRESS:PORT"),
        ({"endpoint": "10.0.0.1:51820", "server": "https://10.0.0.1:6443"}, "is outside the tunnel"),
        ({"endpoint": "10.0.0.1:51820", "server": "https://10.64.0.1:6443"}, ""),
        ({"interface": "wg-b"}, "another cluster has the interface wg-b"),
        ({"endpoint": "x.example:51821"}, "another cluster has the port 51821"),
        ({"networks": ("10.70.0.0/15",)}, "10.70.0.0/15 overlaps 10.70.0.0/16, which another cluster has"),
    ],
)
def test_invalid_vpn_settings_are_reported_when_the_cluster_is_added(changed, problem):
    other = VPN(networks=("10.70.0.0/16",), endpoint="hub.example:51821", interface="wg-b")
    found = network.problem(replace(BOTH, **changed), subnets=SUBNETS, server=ENDPOINT, others=[other])
    assert problem in found
    assert bool(problem) == bool(found)


ENDS = TunnelAnswer(
    cidr="10.64.0.0/16",
    address="10.64.0.7/16",
    private_key=NODE_KEY,
    endpoint="192.0.2.1:51820",
    endpoint_key=wireguard.public_key(HUB_KEY),
)
OURS = replace(
    ENDS, private_key="", cidr="10.64.0.0/16,fd00:64::/64,10.9.9.9/32", address="10.64.0.7/16,fd00:64::7/64", mtu="1400", keepalive="0"
)


@pytest.mark.parametrize(
    ("ends", "problem"),
    [
        (ENDS, ""),
        (OURS, ""),
        (replace(ENDS, cidr="0.0.0.0/0", address="10.64.0.7/0"), "cannot be the network of a VPN"),
        (replace(ENDS, cidr="127.0.0.0/8", address="127.0.0.7/8"), "cannot be the network of a VPN"),
        (replace(ENDS, cidr="10.64.0.1/16"), "is not a network"),
        (replace(ENDS, cidr=""), "is not a network"),
        (replace(OURS, cidr=",".join(f"10.{number}.0.0/16" for number in range(5))), "5 networks are more than 4"),
        (replace(ENDS, cidr="172.16.0.0/12", address="172.16.0.7/12"), "contains the address 172.20.0.9 of this machine"),
        (replace(ENDS, address="10.65.0.7/16"), "is not an address in"),
        (replace(ENDS, address="10.64.0.7/24"), "is not an address in"),
        (replace(ENDS, address="10.64.0.0/16"), "is not an address in"),
        (replace(ENDS, address="10.64.255.255/16"), "is not an address in"),
        (replace(ENDS, address="10.64.0.7; reboot"), "is not an address with a prefix length"),
        (replace(ENDS, address="10.64.0.7/255.255.0.0"), "is not an address with a prefix length"),
        (replace(OURS, address="10.64.0.7/16,fd00:64::7%x\0StandardInput=data\0/64"), "is not an address with a prefix length"),
        (replace(OURS, address="10.64.0.7/16,fd00:64::7%eth0/64"), "is not an address with a prefix length"),
        (replace(OURS, cidr="10.64.0.0/16,fd00:64::%x\0ExecStart=/bin/sh\0/64"), "is not a network"),
        (replace(ENDS, cidr="10.64.0.0"), "is not a network"),
        (replace(OURS, cidr="10.64.0.0/16,fd00:64::/64,::ffff:10.9.9.0/120"), "cannot be the network of a VPN"),
        (replace(ENDS, endpoint="[fe80::1%x\0y]:51820"), "its endpoint:"),
        (replace(ENDS, endpoint="192.0.2.1:51820\n"), "its endpoint:"),
        (replace(ENDS, address="10.64.0.7/16,10.64.0.8/16"), "more than one address or network"),
        (replace(ENDS, cidr="10.64.0.0/16,10.9.9.9/32"), "more than one address or network"),
        (replace(OURS, address="10.64.0.7/16,10.64.0.8/16"), "two addresses of one family"),
        (replace(ENDS, endpoint="192.0.2.1"), "its endpoint has no port"),
        (replace(ENDS, endpoint="$(reboot):51820"), "its endpoint:"),
        (replace(ENDS, endpoint="10.64.0.1:51820"), "reached through itself"),
        (replace(ENDS, endpoint_key="x"), "the hub's key is not a WireGuard key"),
        (replace(ENDS, private_key="x"), "its key is not a WireGuard key"),
        (replace(OURS, mtu="100"), "its MTU is not between 1280 and 9000"),
        (replace(OURS, mtu="+1400"), "its MTU"),
        (replace(OURS, mtu="9" * 5000), "its MTU"),
        (replace(OURS, keepalive="99999"), "its keepalive"),
    ],
)
def test_unsupported_vpns_are_refused_by_name(ends, problem):
    machine = ("127.0.0.1", "172.20.0.9", "fe80::1")
    if not problem:
        tunnel_checks.require(ends, offered=True, machine=machine)
        return
    with pytest.raises(TrustError) as refused:
        tunnel_checks.require(ends, offered=True, machine=machine)
    assert problem in str(refused.value)


def test_an_answer_without_a_key_is_refused_if_none_was_sent():
    with pytest.raises(TrustError, match="it has no key"):
        tunnel_checks.require(OURS, offered=False, machine=())


TEXTS = st.text(max_size=60)


@given(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
def test_any_answer_gives_a_tunnel_or_a_reason(cidr, address, key, endpoint, hub, mtu, keepalive):
    ends = TunnelAnswer(cidr=cidr, address=address, private_key=key, endpoint=endpoint, endpoint_key=hub, mtu=mtu, keepalive=keepalive)
    with pytest.raises(TrustError):
        tunnel_checks.require(ends, offered=True, machine=())


HOSTILE = st.text(st.sampled_from("0123456789abcdef.:/,[]%\0\r\n ;\\\"'$=") | st.characters(), max_size=40)


@given(st.sampled_from(["cidr", "address", "endpoint", "mtu", "keepalive", "endpoint_key"]), HOSTILE, st.booleans())
@example(name="address", text="%x\0StandardInput=data\0/64", after=True)
def test_any_value_gives_a_unit_with_the_same_lines_and_only_parsed_values(name, text, after):
    value = getattr(OURS, name) + text if after else text
    try:
        ends = tunnel_checks.require(replace(OURS, **{name: value}), offered=True, machine=())
    except TrustError:
        return
    unit, usual = written(ends), written(tunnel_checks.require(OURS, offered=True, machine=()))
    ips = [one for one in systemd_kit.names(unit) if one[1] != "ExecStartPost"]
    assert ips == [one for one in systemd_kit.names(usual) if one[1] != "ExecStartPost"]
    steps = [systemd_kit.commands(step) for step in systemd_kit.values(unit, "ExecStartPost")]
    assert [len(step) for step in steps] == [1] * len(steps)  # one command each
    [[_, _, _, _, _, _, peer, _, endpoint, _, keepalive, _, networks]] = steps[0]
    assert wireguard.is_key(peer)
    assert formats.host_port(endpoint)[1].isdigit()
    assert 0 <= int(keepalive) <= 65535
    assert [str(ipaddress.ip_network(one)) for one in networks.split(",")] == networks.split(",")
    assert {str(ipaddress.ip_address(one)) for one in tunnels.node_addresses(unit.encode())} == set(tunnels.node_addresses(unit.encode()))


def written(ends: CheckedEnds) -> str:
    return tunnels.node_unit(tunnel_checks.node_tunnel(ends, key_file=PurePosixPath("/etc/oneinfra/wg.key")), PROGRAMS)


PROGRAMS = TunnelPrograms(
    ip=PurePosixPath("/usr/sbin/ip"), wg=PurePosixPath("/usr/bin/wg"), daemon=PurePosixPath("/usr/local/bin/wireguard-go")
)


@pytest.mark.parametrize("kernel", [True, False])
def test_the_unit_of_a_node_uses_no_shell_and_contains_no_key(kernel):
    programs = replace(PROGRAMS, daemon=None) if kernel else PROGRAMS
    ends = tunnel_checks.require(OURS, offered=True, machine=())
    text = tunnels.node_unit(tunnel_checks.node_tunnel(ends, key_file=PurePosixPath("/etc/oneinfra/wg.key")), programs)
    lines = text.splitlines()
    assert NODE_KEY not in text
    assert "Before=kubelet.service" in lines
    steps = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=" if kernel else "ExecStartPost=")]
    peer = f"peer {OURS.endpoint_key} endpoint 192.0.2.1:51820 persistent-keepalive 0 allowed-ips {OURS.cidr}"
    assert steps[1 if kernel else 0 :] == [
        f"/usr/bin/wg set oi-wg private-key /etc/oneinfra/wg.key {peer}",
        "/usr/sbin/ip address replace 10.64.0.7/16 dev oi-wg",
        "/usr/sbin/ip address replace fd00:64::7/64 dev oi-wg",
        "/usr/sbin/ip link set dev oi-wg mtu 1400 up",
        "/usr/sbin/ip route replace 10.9.9.9/32 dev oi-wg",
    ]
    device = "ExecStart=/usr/sbin/ip link add dev oi-wg type wireguard" if kernel else "ExecStart=/usr/local/bin/wireguard-go oi-wg"
    assert device in lines
    assert ("Type=oneshot" if kernel else "Type=forking") in lines
    assert tunnels.node_addresses(text.encode()) == ("10.64.0.7", "fd00:64::7")
    assert tunnels.is_ours(text.encode())


def test_the_tunnel_of_a_hub_of_oneinfra_is_optional_for_the_node():
    text = written(tunnel_checks.require(ENDS, offered=True, machine=()))
    assert tunnels.node_addresses(text.encode()) == ()
    assert tunnels.node_addresses(b"# somebody else's\nX-NodeAddresses=10.0.0.1\n") == ()
    assert "mtu 1420" in text
    assert "persistent-keepalive 20" in text


def test_a_program_path_that_no_unit_can_contain_is_refused():
    with pytest.raises(HostError, match="no unit can start"):
        tunnels.device_unit("wg-a", replace(PROGRAMS, daemon=PurePosixPath('/opt/"wg"/wireguard-go')))


@pytest.mark.parametrize(
    ("addresses", "flag"), [((), ""), (("10.64.0.7",), "--node-ip=10.64.0.7"), (("10.64.0.7", "fd00::7"), "--node-ip=10.64.0.7,fd00::7")]
)
def test_the_kubelet_reports_the_addresses_of_the_tunnel(addresses, flag):
    files = kubelet.joined_unit_files(
        PurePosixPath("/usr/bin/kubelet"), kubeconfig=PurePosixPath("/a"), config=PurePosixPath("/b"), node="n", addresses=addresses
    )
    assert [word for word in files[kubelet.JOINED_DROP_IN].split() if word.startswith("--node-ip")] == ([flag] if flag else [])
