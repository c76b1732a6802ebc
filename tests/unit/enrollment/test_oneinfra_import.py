"""Importing oneinfra's clusters: what is imported, all wrong fields at once, all or nothing."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from hub_kit import CLIENT_CA, CLOCK, JOIN_KEY, SERVING_CA, event, sqlite
from oneinfra_kit import PEER, SERVER_KEY, authority, client_certificate, manifest, with_older_vpn, with_vpn
from test_hub_stores import SecretsPlace

from kubewright.apis.kubeconfig import parse
from kubewright.base import yaml
from kubewright.base.clock import rfc3339
from kubewright.base.errors import UsageError, ValidationError
from kubewright.base.randomness import SeededRandom
from kubewright.cli.main import main
from kubewright.enrollment.hub import issuing, oneinfra_clusters
from kubewright.enrollment.hub.oneinfra_clusters import ImportedCluster
from kubewright.enrollment.node import answer_checks
from kubewright.enrollment.node.answer_checks import Expected
from kubewright.enrollment.protocol.fields import SymmetricKey
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.enrollment.state.store import Taken
from kubewright.enrollment.vpn.network import read as read_vpn
from kubewright.kube.credentials import ClientCertificate
from kubewright.kube.kubeconfigs import access_from_kubeconfig
from kubewright.pki import certificates
from kubewright.pki.keys import FreshKeys


def read(*manifests: Any) -> list[ImportedCluster]:
    documents = [
        document for number, one in enumerate(manifests) for document in yaml.load_all(yaml.dump(one).encode(), source=f"{number}.yaml")
    ]
    return oneinfra_clusters.read(documents, now=CLOCK.now(), token_life=timedelta(hours=1), random=SeededRandom(2))


def problems(*manifests: Any) -> list[str]:
    with pytest.raises(ValidationError, match="cannot be imported") as caught:
        read(*manifests)
    return [str(error.path) for error in caught.value.errors]


def test_everything_needed_for_joining_is_imported():
    [found] = read(manifest())
    cluster = found.cluster
    assert (cluster.name, cluster.server, cluster.kubernetes_version) == ("old", "https://10.0.0.1:6443", "v1.36.3")
    assert (cluster.join_key, cluster.client_ca, cluster.serving_ca, cluster.kubelet_client_ca) == (
        JOIN_KEY, CLIENT_CA[0], SERVING_CA[0], CLIENT_CA[0],
    )  # fmt: skip
    assert (cluster.service_subnet, cluster.pod_subnets, cluster.vpn, found.records) == ("10.96.0.0/16", ("10.244.0.0/16",), None, ())
    assert [token.token.text for token in found.tokens] == ["abcdef.0123456789abcdef", "ghijkl.0123456789abcdef"]
    assert {token.expires for token in found.tokens} == {rfc3339(CLOCK.now() + timedelta(hours=1))}
    access = access_from_kubeconfig(parse(yaml.load_one(cluster.kubeconfig.encode(), source="kubeconfig")))
    assert isinstance(access.identity, ClientCertificate)
    mine = certificates.first(access.identity.cert_pem, source="mine")
    assert (mine.common_name, mine.organizations, mine.usages) == ("kubewright-hub", ("system:masters",), ("clientAuth",))
    assert mine.issued_by(certificates.first(CLIENT_CA[0].encode(), source="ca"))
    assert LoadedCluster(cluster).servers.certificate.issued_by(certificates.first(SERVING_CA[0].encode(), source="ca"))


@pytest.mark.parametrize(("found", "address", "own"), [(with_vpn, "10.7.0.1", "10.7.255.254"), (with_older_vpn, "10.7.0.2", "10.7.0.1")])
def test_a_vpn_is_imported_with_key_and_nodes_and_the_hub_gets_a_free_address(found, address, own):
    [imported] = read(found())
    cluster = imported.cluster
    assert cluster.vpn is not None
    assert (cluster.vpn.networks, cluster.vpn.endpoint, cluster.vpn_key) == (("10.7.0.0/16",), "hub.example:51820", SERVER_KEY)
    [record] = imported.records
    assert (record.node, record.leases, record.tunnel_key, record.active) == ("node-1", (address,), PEER, True)
    assert cluster.vpn.hub_addresses == (f"{own}/16",)
    assert read_vpn(cluster.vpn.document()) == cluster.vpn
    [pool] = cluster.vpn.pools
    assert not pool.may_give(pool.hub)
    assert pool.may_give(ipaddress.ip_address("10.7.0.1")) is (own != "10.7.0.1")


def test_imported_names_stay_taken_with_their_certificate_expiry():
    kept = {f"system:node:{node}": client_certificate(node, days=days) for node, days in (("node-1", 365), ("node-2", 100), ("gone", 20))}
    other = authority("another")
    kept |= {
        "kubernetes-admin": client_certificate("admin"),
        "system:node:foreign": other,
        "system:node:other": client_certificate("another"),
    }
    [found] = read(with_vpn(status__clientCertificates=kept))
    assert [(one.node, one.lease, [row.purpose for row in one.certificates]) for one in found.records] == [
        ("node-1", "10.7.0.1", ["client"]),
        ("node-2", "", ["client"]),
    ]
    pem = kept["system:node:node-2"]["certificate"]
    leaf = certificates.first(pem.encode(), source="it")
    [row] = found.records[1].certificates
    assert (row.serial, row.fingerprint, row.not_after) == (
        f"{leaf.serial:x}",
        hashlib.sha256(leaf.der).hexdigest(),
        rfc3339(leaf.not_after),
    )
    assert [one.node for one in read(manifest(status__clientCertificates=kept))[0].records] == ["node-1", "node-2"]
    assert problems(manifest(status__clientCertificates="x")) == ["status.clientCertificates"]
    assert problems(manifest(status__clientCertificates={"system:node:a": {"certificate": "x"}})) == ["status.clientCertificates"]


def test_a_vpn_without_a_network_has_the_default_of_oneinfra():
    [found] = read(with_vpn(spec__vpn={"enabled": True, "privateKey": SERVER_KEY}, status__vpnPeers=None))
    assert found.cluster.vpn is not None
    assert found.cluster.vpn.networks == ("10.0.0.0/16",)


def test_cas_of_oneinfra_sign_usable_certificates():
    made = authority("apiserver-client-authority")
    [found] = read(manifest(**{f"spec__certificateAuthorities__{name}": made for name in ("apiServerClient", "kubelet", "kubeletClient")}))
    wanted = JoinRequest(endpoint="https://10.0.0.1:6443", key=SymmetricKey(b"k" * 32))
    given = {"key_source": FreshKeys(), "started": CLOCK.now(), "random": SeededRandom(3)}
    answer = issuing.issue(LoadedCluster(found.cluster), "worker", wanted, **given).answer
    ca_pem = found.cluster.server_ca.encode()
    answer_checks.checked(answer, Expected(node="worker", server=wanted.endpoint, ca_pem=ca_pem, sans=(), now=CLOCK.now()))
    ca = certificates.first(made["certificate"].encode(), source="ca")
    access = access_from_kubeconfig(parse(yaml.load_one(found.cluster.kubeconfig.encode(), source="kubeconfig")))
    for pem in (answer.serving_certificate.encode(), access.identity.cert_pem):
        assert certificates.first(pem, source="leaf").issued_by(ca)


def test_lists_are_read_and_other_kinds_ignored():
    listed = {"apiVersion": "v1", "kind": "List", "items": [manifest("a"), {"apiVersion": "v1", "kind": "Pod"}, manifest("b")]}
    assert [one.cluster.name for one in read(listed, {"kind": "Component"}, manifest("c"))] == ["a", "b", "c"]
    with pytest.raises(UsageError, match="these files contain no Cluster"):
        read({"kind": "Component"})


def test_all_wrong_fields_are_reported_at_once_without_secrets():
    broken = manifest(
        metadata__name="No_Name",
        spec__kubernetesVersion=None,
        spec__certificateAuthorities__kubelet__privateKey=CLIENT_CA[1],
        spec__certificateAuthorities__kubeletClient="text",
        spec__apiServer__ca__certificate="no certificate",
        spec__joinKey__privateKey="no key",
        spec__joinTokens=["abcdef.0123456789abcdef", "secret-that-is-no-token", 7],
        spec__networking__serviceCIDR="10.96.0.0/99",
        spec__vpn__enabled="yes",
        status__apiServerEndpoint="http://10.0.0.1",
    )
    assert sorted(problems(broken)) == [
        "metadata.name",
        "spec.apiServer.ca.certificate",
        "spec.certificateAuthorities.kubelet",
        "spec.certificateAuthorities.kubeletClient.certificate",
        "spec.joinKey.privateKey",
        "spec.joinTokens[1]",
        "spec.joinTokens[2]",
        "spec.kubernetesVersion",
        "spec.networking.serviceCIDR",
        "spec.vpn.enabled",
        "status.apiServerEndpoint",
    ]
    with pytest.raises(ValidationError) as caught:
        read(broken)
    text = f"{caught.value}{caught.value.detail}{json.dumps(caught.value.as_map())}"
    for secret in ("secret-that-is-no-token", "no key", CLIENT_CA[1].splitlines()[1]):
        assert secret not in text


def test_errors_in_the_second_of_several_are_reported_with_their_position():
    with pytest.raises(ValidationError) as caught:
        read({"apiVersion": "v1", "kind": "List", "items": [manifest("a"), manifest("b", spec__joinKey=None)]})
    [error] = caught.value.errors
    assert (str(error.path), error.source.startswith("0.yaml:")) == ("items[1].spec.joinKey.privateKey", True)
    assert problems(manifest("a"), manifest("a")) == ["metadata.name"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"status__vpnServerEndpoint": None}, "status.vpnServerEndpoint"),
        ({"spec__vpn__CIDR": "10.96.0.0/24"}, "spec.vpn"),
        ({"spec__vpn__privateKey": "x"}, "spec.vpn.privateKey"),
        ({"spec__vpn__privateKey": None}, "spec.vpn.privateKey"),
        ({"status__vpnPeers": [{"name": "worker-a", "address": "10.7.0.0/16", "publicKey": PEER}]}, "status.vpnPeers[0].address"),
        ({"status__vpnPeers": [{"name": "worker-a", "address": "10.8.0.1/16", "publicKey": PEER}]}, "status.vpnPeers[0].address"),
        ({"status__vpnPeers": [{"name": f"worker-{n}", "address": "10.7.0.1/16", "publicKey": PEER} for n in "ab"]}, "status.vpnPeers[1]"),
        ({"status__vpnPeers": [{"name": "worker-a", "address": "10.7.0.2/32", "publicKey": "x"}]}, "status.vpnPeers[0].publicKey"),
        ({"status__vpnPeers": [{"name": "worker-A", "address": "10.7.0.2/32", "publicKey": PEER}]}, "status.vpnPeers[0].name"),
        ({"status__vpnPeers": "none"}, "status.vpnPeers"),
    ],
)
def test_an_unusable_vpn_is_refused(change, path):
    assert path in problems(with_vpn(**change))


def test_clusters_tokens_and_nodes_are_imported_all_or_none(tmp_path):
    for store in (sqlite(tmp_path), SecretsPlace(tmp_path).open()):
        with closing(store):
            first, second = read(with_vpn("a")), read(with_vpn("a"), manifest("b"))
            for number, found in enumerate((first, second)):
                clusters, tokens = [one.cluster for one in found], [token for one in found for token in one.tokens]
                records = [record for one in found for record in one.records]
                if number == 0:
                    store.add_clusters(clusters, tokens, records, event("imported", cluster=""))
                else:
                    with pytest.raises(Taken, match="the hub serves a already"):
                        store.add_clusters(clusters, tokens, records, event("imported", cluster=""))
            assert [one.name for one in store.clusters()] == ["a"]
            assert store.clusters() == [first[0].cluster]
            assert (len(store.tokens()), store.owners("a", ["node-1", "10.7.0.1"])) == (2, {"node-1": "node-1", "10.7.0.1": "node-1"})
            assert [line.event for line in store.journal()] == ["imported"]


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(["hub", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_shows_a_plan_and_imports_once(tmp_path, capsys):
    state = ("--state", str(tmp_path / "hub" / "state.db"), "--key-file", str(tmp_path / "hub" / "state.key"))
    source = tmp_path / "clusters.yaml"
    source.write_text(f"{yaml.dump(manifest('a'))}---\n{yaml.dump(with_vpn('b'))}")
    code, planned, _ = run(capsys, "import", str(source), "--dry-run", "-o", "json", *state)
    assert (code, (tmp_path / "hub").exists()) == (0, False)
    rows = json.loads(planned)
    assert [(row["name"], row["tokens"], row["vpn"], row["nodes"]) for row in rows] == [("a", 2, "", 0), ("b", 2, "10.7.0.0/16", 1)]
    assert run(capsys, "import", str(source), "-o", "json", *state)[:2] == (0, planned)
    code, _, told = run(capsys, "import", str(source), *state)
    assert code == 2
    assert "nothing was imported: the hub serves a, b already" in told
    source.write_text(yaml.dump(manifest("c", spec__joinKey=None)))
    code, _, told = run(capsys, "import", str(source), *state)
    assert code == 3
    assert "spec.joinKey.privateKey: Required value" in told
    code, listed, _ = run(capsys, "cluster", "list", "-o", "json", *state)
    assert [row["name"] for row in json.loads(listed)] == ["a", "b"]
