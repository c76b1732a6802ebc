"""When certificates of nodes expire: what is reported, and what a machine uses whose kubelet has renewed its own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePosixPath

import pytest
from hub_kit import CLIENT_CA, CLOCK, cluster
from old_peer import OldNode
from tenants_kit import Bench, PreparedKeys

from kubewright.apis.join_records import IssuedCertificate, JoinRecord, State
from kubewright.apis.machine import Layout
from kubewright.base.errors import CertificateError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.hub import expiry, issuing
from kubewright.enrollment.hub.expiry import CertificateEnds
from kubewright.enrollment.node.joined_machine import renewed
from kubewright.enrollment.protocol.fields import SymmetricKey
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.host.desired import File
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.kube.credentials import Access, BearerToken, ClientCertificate
from kubewright.pki import certificates


def issued(purpose: str, end: str) -> IssuedCertificate:
    return IssuedCertificate(purpose=purpose, serial="1", fingerprint="f", not_after=end)


RECORD = JoinRecord(
    cluster="a",
    node="worker",
    state=State.ISSUED,
    protocol="p",
    request="u",
    key="k",
    certificates=(issued("client", "2026-05-01T00:00:00Z"), issued("serving", "2026-06-01T00:00:00Z")),
)


@pytest.mark.parametrize(
    ("config", "end"),
    [
        ({}, "2026-05-01T00:00:00Z"),
        ({"rotateCertificates": True}, "2026-06-01T00:00:00Z"),
        ({"rotateCertificates": "true"}, "2026-05-01T00:00:00Z"),
        ({"serverTLSBootstrap": True}, "2026-05-01T00:00:00Z"),
        ({"rotateCertificates": True, "serverTLSBootstrap": True}, ""),
    ],
)
def test_certificates_that_the_kubelet_renews_do_not_count(config, end):
    assert expiry.end_of(RECORD, config) == end
    assert expiry.end_of(replace(RECORD, state=State.LEFT), config) == ""


def test_the_first_expiry_is_that_of_existing_nodes():
    ends = CertificateEnds({})
    assert ends.first == float("inf")
    later = replace(RECORD, node="later", certificates=(issued("client", "2027-01-01T00:00:00Z"),))
    ends.load([RECORD, later])
    assert ends.first == 1777593600.0
    ends.put(replace(RECORD, state=State.LEFT))
    assert ends.first == 1798761600.0


async def test_a_hub_knows_the_first_expiry_of_its_records_and_new_nodes(tmp_path):
    bench = Bench(tmp_path)
    bench.ask(OldNode("worker", "https://10.0.0.1:6443"))
    assert not await bench.serve(lambda: bench.status("worker") == "True Issued")
    assert bench.tenant.ends.first < float("inf")
    before = bench.tenant
    assert not await bench.serve(lambda: bench.tenant is not before and bench.tenant.ends.first < float("inf"))


@pytest.mark.parametrize(("lifetime", "days"), [(365 * 86400, 365), (86400, 1)])
def test_certificates_have_the_lifetime_that_the_cluster_sets(lifetime, days):
    loaded = LoadedCluster(cluster(lifetime=lifetime))
    wanted = JoinRequest(key=SymmetricKey(b"0" * 32))
    made = issuing.issue(loaded, "worker", wanted, key_source=PreparedKeys(), started=CLOCK.now(), random=SeededRandom(1))
    assert {one.not_after for one in made.certificates} == {(CLOCK.now() + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")}


def pem(node: str, *, lifetime: int) -> dict[str, bytes]:
    """A client certificate of a hub, and its key."""
    from kubewright.apis.kubeconfig import parse, require_usable
    from kubewright.base import yaml

    loaded = LoadedCluster(cluster(lifetime=lifetime))
    made = issuing.issue(
        loaded, node, JoinRequest(key=SymmetricKey(b"0" * 32)), key_source=PreparedKeys(), started=CLOCK.now(), random=SeededRandom(1)
    )
    user = require_usable(parse(yaml.load_one(made.answer.kubeconfig.encode(), source="kubeconfig"))).user
    return {"cert_pem": user.client_certificate_data, "key_pem": user.client_key_data}


@pytest.mark.parametrize(
    ("node", "lifetime", "taken"),
    [("worker", 500, True), ("worker", 50, False), ("other", 500, False)],
    ids=["later", "sooner", "another's"],
)
def test_renewed_certificates_of_the_kubelet_are_used_if_they_last_longer(tmp_path, node, lifetime, taken):
    host = OverlayHost(RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={}))
    given = ClientCertificate(**pem("worker", lifetime=100))
    access = Access(server="https://10.0.0.1:6443", ca_pem=CLIENT_CA[0].encode(), identity=given)
    assert renewed(access, host) is access
    content = b"".join(pem(node, lifetime=lifetime).values())
    host.ensure(File(path=host.layout.kubelet / "pki" / "kubelet-client-current.pem", content=content))
    found = renewed(access, host).identity
    assert (found != given) is taken
    if taken:
        assert certificates.first(found.cert_pem, source="renewed").common_name == "system:node:worker"


@pytest.mark.parametrize("content", [b"", b"nothing", CLIENT_CA[0].encode()])
def test_a_file_without_a_pair_is_not_used(tmp_path, content):
    host = OverlayHost(RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={}))
    access = Access(server="https://10.0.0.1:6443", ca_pem=CLIENT_CA[0].encode(), identity=ClientCertificate(**pem("worker", lifetime=100)))
    host.ensure(File(path=host.layout.kubelet / "pki" / "kubelet-client-current.pem", content=content))
    assert renewed(access, host) is access
    token = replace(access, identity=BearerToken("t" * 16))
    assert renewed(token, host) is token
    with pytest.raises(CertificateError):
        certificates.first(b"nothing", source="x")
