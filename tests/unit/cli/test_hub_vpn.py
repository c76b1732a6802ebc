"""`hub cluster add --vpn-…`: what is accepted, what is refused before anything is stored, and which node has which address."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "enrollment"))

from hub_kit import CLIENT_CA, authority, keep

from kubewright.apis.join_records import IssuedCertificate, JoinRecord, State
from kubewright.apis.kubeconfig import BearerToken, EmbeddedCertificate, kubeconfig_document
from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import replace
from kubewright.cli.handlers import machine
from kubewright.cli.main import main
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.host.desired import Tunnel
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.pki.encryption import sealing

VPN = ("--vpn-cidr=10.64.0.0/16,fd00:64::/64", "--vpn-endpoint=hub.example:51820")
RECORD = JoinRecord(cluster="a", node="worker", state=State.ISSUED, protocol="p", request="u", key="k", lease="10.64.0.7", tunnel_key="K")


_NO_NETWORKS = ("::/0", "fc00::/7", "127.0.0.0/8", "224.0.0.0/8", "169.254.0.0/16", "fe80::/10")


class Commands:
    """The hub's commands with a state below a directory."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys
        self.programs = directory / "bin"
        self.programs.mkdir()
        for name in ("ip", "nft", "wg", "wireguard-go"):
            (self.programs / name).write_text("#!/bin/sh\necho 'Device does not exist.' >&2\nexit 1\n")
            (self.programs / name).chmod(0o755)
        self.host = OverlayHost(RealHost(layout=Layout.below(PurePosixPath(directory)), environment={"PATH": str(self.programs)}))
        for name, text in {"ca.crt": CLIENT_CA[0], "ca.key": CLIENT_CA[1]}.items():
            (directory / name).write_text(text)
        self.use(BearerToken(token="t" * 20))

    def use(self, credentials: BearerToken | EmbeddedCertificate) -> None:
        """Write the kubeconfig with these credentials."""
        document = kubeconfig_document(
            server="https://10.0.0.1:6443",
            cluster_name="a",
            user="hub",
            context="a",
            credentials=credentials,
            ca_pem=authority("api")[0].encode(),
        )
        (self.directory / "admin.conf").write_text(yaml.dump(document))

    def run(self, *words: str, code: int = 0) -> str:
        given = (f"--state={self.directory}/state.db", f"--key-file={self.directory}/state.key")
        assert main(["hub", *words, *given]) == code
        said = self._capsys.readouterr()
        self.warned = said.err
        return said.out if code == 0 else said.err

    def add(self, *flags: str, name: str = "a", code: int = 0) -> str:
        files = {"kubeconfig": "admin.conf", "client-ca-cert-file": "ca.crt", "client-ca-key-file": "ca.key"}
        named = [f"--{flag}={self.directory / file}" for flag, file in files.items()]
        return self.run("cluster", "add", name, *named, "--kubernetes-version=v1.36.3", "-o", "json", *flags, code=code)

    def store(self) -> SQLiteStore:
        key = sealing.parse_key((self.host.read(PurePosixPath(self.directory / "state.key")) or b"").decode().split()[0])
        return SQLiteStore(self.directory / "state.db", key=key, random=SystemRandom())


@pytest.fixture
def commands(tmp_path, capsys, monkeypatch):
    made = Commands(tmp_path, capsys)
    monkeypatch.setattr(machine, "host", lambda *_, **__: made.host)
    return made


def test_a_cluster_gets_a_vpn_whose_key_stays_and_is_not_shown(commands):
    [row] = json.loads(commands.add(*VPN))
    assert (row["vpn"], row["vpnEndpoint"], row["vpnInterface"]) == ("10.64.0.0/16,fd00:64::/64", "hub.example:51820", "wg-86f7e437faa5")
    assert len(row["vpnKey"]) == 44
    [again] = json.loads(commands.add(*VPN, "--vpn-mtu=1380", "--vpn-keepalive=0"))
    assert again["vpnKey"] == row["vpnKey"]
    with closing(commands.store()) as store:
        [found] = store.clusters()
    assert (found.vpn.mtu, found.vpn.keepalive, found.vpn.server) == (1380, 0, "")
    assert found.vpn_key not in commands.run("cluster", "list", "-o", "json")
    assert json.loads(commands.add())[0].get("vpn") is None


def test_the_key_of_the_hub_is_replaced_on_request_and_its_public_half_shown(commands):
    [before] = json.loads(commands.add(*VPN))
    [row] = json.loads(commands.run("cluster", "rotate-vpn-key", "a", "-o", "json"))
    [listed] = json.loads(commands.run("cluster", "list", "-o", "json"))
    assert before["vpnKey"] != row["vpnKey"] == listed["vpnKey"]
    assert commands.run("cluster", "rotate-vpn-key", "a").splitlines()[0].split() == ["NAME", "VPN", "KEY"]
    with closing(commands.store()) as store:
        [found] = store.clusters()
        assert [line.event for line in store.journal()].count("vpn key of the hub changed") == 2
    assert found.vpn_key not in commands.run("journal", "-o", "json")
    [again] = json.loads(commands.add(*VPN))
    assert again["vpnKey"] != row["vpnKey"]  # the second one
    commands.add()
    assert "has no VPN" in commands.run("cluster", "rotate-vpn-key", "a", code=2)
    assert "serves no cluster" in commands.run("cluster", "rotate-vpn-key", "b", code=2)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (VPN[:1], "--vpn-endpoint is missing"),
        (("--vpn-cidr=10.96.8.0/24", VPN[1]), "10.96.8.0/24 overlaps 10.96.0.0/12, which is for Services or pods"),
        (("--vpn-cidr=10.64.0.0", VPN[1]), "is not a CIDR"),
        *(
            ((f"--vpn-cidr={cidr}", VPN[1]), f"{cidr} is too small for a node")
            for cidr in ("10.64.0.0/31", "10.64.0.0/32", "fd00::/127", "fd00::/128")
        ),
        *(((f"--vpn-cidr={cidr}", VPN[1]), f"{cidr} cannot be the network of a VPN") for cidr in _NO_NETWORKS),
        (("--vpn-cidr=10.64.0.0/16", "--vpn-endpoint=hub.example:51820\n"), "the port must be a number"),
        ((*VPN, "--server=http://10.0.0.1:6443"), "is not https://HOST:PORT"),
        ((*VPN, "--server=https://10.0.0.1:6443#x"), "is not https://HOST:PORT"),
        ((*VPN, "--pod-network-cidr=10.64.128.0/17"), "which is for Services or pods"),
        ((*VPN, "--vpn-mtu=576"), "the MTU is 576"),
        ((*VPN, "--vpn-server=http://10.0.0.1"), "is not https://ADDRESS:PORT"),
    ],
)
def test_invalid_vpn_settings_are_refused_and_nothing_is_stored(commands, flags, problem):
    assert problem in commands.add(*flags, code=2)
    assert json.loads(commands.run("cluster", "list", "-o", "json")) == []


def test_two_clusters_of_a_hub_do_not_share_addresses(commands):
    commands.add(*VPN)
    assert "another cluster has the port 51820" in commands.add("--vpn-cidr=10.65.0.0/16", VPN[1], name="b", code=2)
    assert "which another cluster has" in commands.add(VPN[0], "--vpn-endpoint=hub.example:51821", name="b", code=2)
    commands.add("--vpn-cidr=10.65.0.0/16", "--vpn-endpoint=hub.example:51821", name="b")


@pytest.mark.parametrize("flags", [(), ("--vpn-cidr=10.65.0.0/16", VPN[1]), ("--vpn-cidr=10.64.0.0/30", VPN[1])])
def test_a_network_with_nodes_cannot_be_changed(commands, flags):
    commands.add(*VPN)
    with closing(commands.store()) as store:
        keep(store, RECORD)
        keep(store, replace(RECORD, node="gone", state=State.LEFT))
    said = commands.add(*flags, code=2)
    assert "1 nodes have addresses in the present VPN" in said
    assert "worker" in said
    commands.add("--vpn-cidr=10.64.0.0/17", VPN[1])


def test_missing_programs_on_the_machine_of_the_hub_are_reported(commands):
    (commands.programs / "wg").unlink()
    commands.add(*VPN)
    assert "wg is not installed: the VPN needs it: install the package wireguard-tools" in commands.warned


def test_joined_nodes_are_listed_with_their_vpn_addresses(commands):
    assert commands.run("nodes") == ""
    made, told = commands.warned.splitlines()
    assert (made.startswith("warning: made "), "keep a copy of it in a different place" in made, told) == (True, True, "no node has joined")
    commands.add(*VPN)
    with closing(commands.store()) as store:
        keep(store, RECORD)
    [row] = json.loads(commands.run("nodes", "-o", "json"))
    assert (row["node"], row["state"], row["lease"], row["tunnelKey"]) == ("worker", "Issued", "10.64.0.7", "K")
    assert "key" not in row
    columns = ["CLUSTER", "NODE", "STATE", "VPN", "ADDRESS", "ISSUED", "CERTIFICATES", "EXPIRE"]
    assert commands.run("nodes").splitlines()[0].split() == columns


def test_expiring_certificates_are_reported_unless_the_kubelet_renews_them(commands):
    commands.add()
    certificates = tuple(
        IssuedCertificate(purpose=one, serial="1", fingerprint="f", not_after="2026-01-01T00:00:00Z") for one in ("client", "serving")
    )
    with closing(commands.store()) as store:
        for number in range(12):
            keep(store, replace(RECORD, node=f"w-{number:02d}", lease="", tunnel_key="", certificates=certificates))
        keep(store, replace(RECORD, node="gone", lease="", tunnel_key="", state=State.LEFT, certificates=certificates))
    rows = json.loads(commands.run("nodes", "-o", "json"))
    assert {row["ends"] for row in rows if row["node"] != "gone"} == {"2026-01-01T00:00:00Z"}
    assert "certificates of 12 nodes expire within 30 days: a w-00 (2026-01-01T00:00:00Z), " in commands.warned
    assert "and 2 more" in commands.warned
    (commands.directory / "kubelet.yaml").write_text("rotateCertificates: true\nserverTLSBootstrap: true\n")
    commands.add(f"--kubelet-config={commands.directory}/kubelet.yaml")
    assert {row["ends"] for row in json.loads(commands.run("nodes", "-o", "json"))} == {""}
    assert commands.warned == ""


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--kubernetes-version=latest", '"latest" is not a version like v1.36.3'),
        ("--kubernetes-version=1.36", "is not a version like v1.36.3"),
        ("--certificate-lifetime=0", "--certificate-lifetime must be longer than zero"),
        ("--certificate-lifetime=-1h", "--certificate-lifetime must be longer than zero"),
    ],
)
def test_settings_that_no_node_could_use_are_refused(commands, flag, problem):
    assert problem in commands.add(flag, code=2)
    assert json.loads(commands.run("cluster", "list", "-o", "json")) == []


@pytest.mark.parametrize(
    ("text", "told", "code"),
    [
        ("failCgroupV1: false", "", 0),
        (
            "{staticPodPath: /x, readOnlyPort: 1}",
            "readOnlyPort: a hub may not set it: leave that out, or join machines with --accept-kubelet-fields=staticPodPath,readOnlyPort\n",
            0,
        ),
        ("noSuchField: 1", "noSuchField: Unknown field: leave that out\n", 0),
        ('clusterDomain: "a\\0b"', "clusterDomain holds a control character", 3),
    ],
)
def test_fields_that_nodes_refuse_are_reported_when_the_cluster_is_added(commands, text, told, code):
    commands.add()  # which reports the new key
    (commands.directory / "kubelet.yaml").write_text(text)
    commands.add(f"--kubelet-config={commands.directory}/kubelet.yaml", code=code)
    assert told in commands.warned
    assert bool(commands.warned) == bool(told)


def token_until(seconds: object) -> BearerToken:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": seconds}).encode()).decode().rstrip("=")
    return BearerToken(token=f"aaaa.{claims}.bbbb")


HOUR = datetime.now(UTC) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("credentials", "told"),
    [
        (token_until(int(HOUR.timestamp())), f"expire at {HOUR:%Y-%m-%dT%H:%M:%SZ}: before that, run this command again"),
        (token_until(int(HOUR.timestamp()) + 365 * 86400), ""),
        (token_until("soon"), ""),
        (token_until(10**30), ""),
        (BearerToken(token="a.b"), ""),
        (EmbeddedCertificate(certificate_pem=CLIENT_CA[0].encode(), key_pem=CLIENT_CA[1].encode()), ""),
    ],
    ids=["an hour", "a year", "text", "never", "no JWT", "certificate"],
)
def test_credentials_that_expire_soon_are_reported_when_the_cluster_is_added(commands, credentials, told):
    commands.use(credentials)
    commands.add()
    assert told in commands.warned
    assert ("expire at" in commands.warned) == bool(told)


def test_the_interface_is_removed_with_the_cluster_even_without_a_daemon(commands):
    commands.add(*VPN)
    commands.host.ensure(Tunnel(name="wg-86f7e437faa5", private_key="k", port=1, addresses=("10.64.0.1/16",), mtu=1420))
    assert commands.host.tunnel("wg-86f7e437faa5") is not None
    commands.run("cluster", "remove", "a")
    assert commands.host.tunnel("wg-86f7e437faa5") is None
