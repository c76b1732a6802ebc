"""The kubelet API without sockets: authorization and responses."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trustme
from agent_values import pod
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from kubewright.agent.access import AccessRules, subresources_of
from kubewright.agent.logs import BadLogRequest, LogOptions, NoLog, limited
from kubewright.agent.server import Contents, KubeletServer
from kubewright.base.clock import FakeClock
from kubewright.base.errors import ServerError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.http import aio, loop, tls
from kubewright.http.failures import NoAnswer
from kubewright.http.messages import Response
from kubewright.http.metrics import Registry
from kubewright.http.routes import Request, Streaming
from kubewright.http.tls import Peer
from kubewright.kube.daemons.serving_identity import own_pair
from kubewright.pki import certificates
from kubewright.pki.keys import Algorithm

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = (NOW + timedelta(days=1)).timestamp()
API_SERVER = Peer(
    common_name="kube-apiserver-kubelet-client", organizations=("kubeadm:cluster-admins",), der=b"der of the API server's", expires=LATER
)
SOMEBODY = Peer(common_name="somebody", organizations=("people",), der=b"der of somebody's", expires=LATER)


class Reviews:
    """An API that answers access reviews: kubeadm's administrators may do everything."""

    def __init__(self, *allowed: str, broken: bool = False) -> None:
        self.allowed = allowed
        self.broken = broken
        self.asked: list[dict[str, Any]] = []

    async def create(self, obj: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.asked.append(obj["spec"])
        if self.broken:
            raise ServerError("broken", code=500)
        spec = obj["spec"]
        if obj["kind"] == "TokenReview":
            known = spec["token"] == "good"
            user = {"username": "robot", "groups": ["robots"]} if known else {}
            return {"status": {"authenticated": known, "user": user}}
        administrator = "kubeadm:cluster-admins" in spec["groups"]
        return {"status": {"allowed": administrator or spec["resourceAttributes"]["subresource"] in self.allowed}}


@dataclass
class Agent:
    """The parts of a NodeAgent that the API uses."""

    name: str
    held: list[dict[str, Any]]
    client: Any = field(default_factory=Reviews)

    @property
    def pods(self) -> Agent:
        return self

    def all(self) -> list[dict[str, Any]]:
        return self.held

    def find(self, namespace: str, name: str) -> dict[str, Any] | None:
        found = (one for one in self.held if (one["metadata"]["namespace"], one["metadata"]["name"]) == (namespace, name))
        return next(found, None)


class Logs:
    def __init__(self, *pieces: bytes, missing: str = "") -> None:
        self.pieces = pieces
        self.missing = missing
        self.asked: list[LogOptions] = []
        self.closed = False

    async def read(self, pod: Any, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        self.asked.append(options)
        if self.missing:
            raise NoLog(self.missing)
        try:
            for piece in self.pieces:
                yield piece
        finally:
            self.closed = True


def static(name: str = "etcd-node-1") -> dict[str, Any]:
    return pod(name, annotations={"kubernetes.io/config.mirror": "hash"})


def server(*agents: Agent, logs: Logs | None = None, **changes: Any) -> KubeletServer:
    return KubeletServer(lambda: agents, logs=logs, clock=FakeClock(NOW), **changes)  # type: ignore[arg-type, return-value]


def ask(
    subject: KubeletServer, path: str, *, peer: Peer | None = API_SERVER, method: str = "GET", token: str = "", **query: str
) -> tuple[int, bytes]:
    """Find the route as the server would, and read the whole answer."""

    async def answer() -> tuple[int, bytes]:
        for route in subject.routes():
            parts = matched(route.pattern, path)
            if parts is not None and route.method in {"*", method}:
                headers = {"authorization": f"Bearer {token}"} if token else {}
                found = await route.handler(Request(method=method, path=path, query=query, parts=parts, peer=peer, headers=headers))
                if isinstance(found, Response):
                    return found.status, found.body
                assert isinstance(found, Streaming)
                return found.status, b"".join([piece async for piece in found.chunks])
        return 404, b"no route"

    return asyncio.run(answer())


def matched(pattern: str, path: str) -> dict[str, str] | None:
    if pattern == "/{path:.*}":
        return {"path": path}
    wanted, given_ = pattern.split("/"), path.split("/")
    if len(wanted) != len(given_):
        return None
    pairs_ = list(zip(wanted, given_, strict=True))
    if any(not one.startswith("{") and one != other for one, other in pairs_):
        return None
    return {one.strip("{}"): other for one, other in pairs_ if one.startswith("{")}


@pytest.mark.parametrize(("peer", "status"), [(None, 401), (SOMEBODY, 403), (API_SERVER, 200)])
def test_health_requires_authorization(peer: Peer | None, status: int):
    assert ask(server(Agent("node-1", [])), "/healthz", peer=peer)[0] == status
    for path, body in (("/healthz", b"ok"), ("/healthz/syncloop", b"ok"), ("/healthz/other", b"404: Page Not Found\n")):
        assert ask(server(Agent("node-1", [])), path)[1] == body
    assert b"[+]syncloop ok\nhealthz check passed" in ask(server(Agent("node-1", [])), "/healthz", verbose="")[1]
    ill = Contents(unhealthy=lambda: "it is stopping")
    assert ask(server(Agent("node-1", []), contents=ill), "/healthz") == (
        500,
        b"[-]syncloop failed: it is stopping\nhealthz check failed\n",
    )


@pytest.mark.parametrize("path", ["/pods", "/containerLogs/default/web/app", "/exec/default/web/app", "/containerLogs/default/none/app"])
def test_nothing_else_is_served_without_a_certificate(path: str):
    assert ask(server(Agent("node-1", [pod()])), path, peer=None)[0] == 401


@pytest.mark.parametrize("path", ["/pods", "/containerLogs/default/web/app", "/portForward/default/web", "/containerLogs/default/none/app"])
def test_unauthorized_clients_get_no_information(path: str):
    status, body = ask(server(Agent("node-1", [pod()])), path, peer=SOMEBODY)
    assert status == 403
    assert b"somebody" in body


@pytest.mark.parametrize("peer", [SOMEBODY, API_SERVER], ids=["somebody", "the API server"])
def test_every_client_is_authorized_by_the_api_server(peer: Peer):
    agent = Agent("node-1", [pod()], client=Reviews("proxy"))
    assert ask(server(agent), "/containerLogs/default/web/app", peer=peer)[0] == 400
    assert agent.client.asked == [
        {
            "user": peer.common_name,
            "groups": [*peer.organizations, "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": [f"X509SHA256={hashlib.sha256(peer.der).hexdigest()}"]},
            "resourceAttributes": {
                "verb": "get",
                "group": "",
                "version": "v1",
                "resource": "nodes",
                "subresource": "proxy",
                "name": "node-1",
            },
        }
    ]


@pytest.mark.parametrize("path", ["/pods", "/containerLogs/default/web/app", "/exec/default/web/app"])
def test_a_common_name_alone_gives_no_access(path: str):
    """Any signer of the cluster may have issued a certificate with the API server's name: RBAC decides what its holder may do."""
    agent = Agent("node-1", [pod()])
    peer = replace(API_SERVER, organizations=())
    assert ask(server(agent), path, peer=peer)[0] == 403
    assert len(agent.client.asked) >= 1


def test_listing_pods_can_be_allowed_separately():
    agent = Agent("node-1", [pod()], client=Reviews("pods"))
    assert ask(server(agent), "/pods", peer=SOMEBODY)[0] == 200
    assert ask(server(agent), "/exec/default/web/app", peer=SOMEBODY, method="POST")[0] == 403
    assert [spec["resourceAttributes"]["verb"] for spec in agent.client.asked] == ["get", "create"]


@pytest.mark.parametrize("client", [None, Reviews("proxy", broken=True)], ids=["not joined", "no answer"])
def test_all_clients_are_refused_while_the_api_server_is_unreachable(client: Any):
    agent = Agent("node-1", [pod()], client=client)
    assert ask(server(agent), "/containerLogs/default/web/app", peer=SOMEBODY) == (
        500,
        b"Authorization error (user=somebody, verb=get, resource=nodes, subresource=proxy)\n",
    )


def test_a_certificate_without_a_name_is_rejected():
    peer = replace(SOMEBODY, common_name="", organizations=("system:masters",))
    assert ask(server(Agent("node-1", [], client=Reviews("pods"))), "/pods", peer=peer) == (401, b"Unauthorized\n")


def test_a_certificate_that_has_expired_since_the_handshake_is_rejected():
    agent, rules = Agent("node-1", [], client=Reviews("pods")), AccessRules(tokens=True, anonymous=True)
    for expires, status in ((NOW.timestamp(), 200), (NOW.timestamp() - 1, 401)):
        assert ask(server(agent, rules=rules), "/pods", peer=replace(SOMEBODY, expires=expires))[0] == status
    expired = replace(SOMEBODY, expires=NOW.timestamp() - 1)
    assert ask(server(agent, rules=rules), "/pods", peer=expired, token="good")[0] == 200


def test_only_nodes_that_the_client_may_access_are_listed():
    open_, shut = Agent("node-1", [pod("one")], client=Reviews("pods")), Agent("node-2", [pod("two")])
    _, body = ask(server(open_, shut), "/pods", peer=SOMEBODY)
    assert b'"one"' in body
    assert b'"two"' not in body


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/containerLogs/default/web/app", 400, b"default/web is simulated by kubewright: nothing runs in it, so it has no logs"),
        ("/containerLogs/default/web/other", 404, b'container "other" does not exist in pod default/web'),
        ("/containerLogs/default/none/app", 404, b"pod default/none does not exist"),
        ("/exec/default/web/app", 400, b"nothing runs in it, so exec is not possible"),
        ("/attach/default/web/uid/app", 400, b"nothing runs in it, so attach is not possible"),
        ("/run/default/web/app", 400, b"so run is not possible"),
        ("/portForward/default/web", 400, b"so portForward is not possible"),
        ("/exec/default/etcd-node-1/app", 400, b"runs as a process without a container: exec is not possible there"),
        ("/metrics", 404, b"404: Page Not Found"),
        ("/logs/syslog", 405, b"logs endpoint is disabled."),
        ("/debug/pprof/", 405, b"profiling endpoint is disabled."),
        ("/checkpoint/default/web/app", 404, b"404: Page Not Found"),
        ("/", 404, b"404: Page Not Found"),
    ],
)
def test_missing_resources_are_reported(path: str, status: int, words: bytes):
    found = ask(server(Agent("node-1", [pod(), static()])), path)
    assert found[0] == status
    assert words in found[1]


def test_the_log_of_a_static_pod_is_served():
    logs = Logs(b"one\n", b"two\n", b"three\n")
    subject = server(Agent("node-1", [static()]), logs=logs)
    query = {"tailLines": "5", "follow": "true", "sinceSeconds": "60", "previous": "false", "timestamps": "true"}
    assert ask(subject, "/containerLogs/default/etcd-node-1/app", **query) == (200, b"one\ntwo\nthree\n")
    assert logs.asked == [LogOptions(tail=5, follow=True, since=NOW - timedelta(seconds=60), timestamps=True)]
    assert logs.closed


def test_a_log_ends_after_the_requested_bytes():
    subject = server(Agent("node-1", [static()]), logs=Logs(b"one\n", b"two\n"))
    assert ask(subject, "/containerLogs/default/etcd-node-1/app", limitBytes="6") == (200, b"one\ntw")


def test_an_empty_log_is_an_empty_answer():
    assert ask(server(Agent("node-1", [static()]), logs=Logs()), "/containerLogs/default/etcd-node-1/app") == (200, b"")


def test_a_missing_log_gives_a_reason():
    subject = server(Agent("node-1", [static()]), logs=Logs(missing="etcd has not been started"))
    assert ask(subject, "/containerLogs/default/etcd-node-1/app") == (400, b"etcd has not been started\n")


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-1"},
        {"tailLines": "x"},
        {"limitBytes": "0"},
        {"sinceSeconds": "0"},
        {"sinceTime": "yesterday"},
        {"sinceTime": "2026-01-02T03:04:05"},
    ],
)
def test_a_wrong_parameter_is_reported(query: dict[str, str]):
    with pytest.raises(BadLogRequest, match=next(iter(query))):
        LogOptions.parse(query, now=NOW)


@pytest.mark.parametrize("seconds", ["99999999999", "999999999999999999"])
def test_more_seconds_than_a_log_can_be_old_are_the_whole_log(seconds: str):
    assert LogOptions.parse({"sinceSeconds": seconds}, now=NOW) == LogOptions()


def test_a_time_can_be_given_as_timestamp():
    assert LogOptions.parse({"sinceTime": "2026-01-02T03:00:00Z"}, now=NOW).since == datetime(2026, 1, 2, 3, tzinfo=UTC)


@given(st.dictionaries(st.sampled_from(["tailLines", "limitBytes", "sinceSeconds", "sinceTime", "follow"]), st.text(max_size=25)))
def test_no_query_causes_another_error(query: dict[str, str]):
    try:
        LogOptions.parse(query, now=NOW)
    except BadLogRequest as error:
        assert error.code == 400


@given(st.lists(st.binary(max_size=5), max_size=6), st.integers(min_value=1, max_value=20))
def test_a_limit_cuts_at_its_byte(pieces: list[bytes], limit: int):
    async def cut() -> bytes:
        async def source() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return b"".join([piece async for piece in limited(source(), limit)])

    assert asyncio.run(cut()) == b"".join(pieces)[:limit]


def test_the_serving_certificate_is_for_the_address():
    certificate, key = own_pair(name="kubelet", addresses=["127.0.0.11"], algorithm=Algorithm.ECDSA_P256, now=NOW, random=SeededRandom(1))
    pair = certificates.pair_of(certificate, key, source="test")
    assert pair.leaf.names.ips == ("127.0.0.11",)
    assert pair.leaf.issued_by(pair.certificates[1])
    assert pair.leaf.usages == ("serverAuth",)
    assert (pair.leaf.not_before, pair.leaf.not_after) == (NOW - timedelta(hours=1), NOW - timedelta(minutes=55) + timedelta(days=365))


def client_pair(authority: trustme.CA, *usages: x509.ObjectIdentifier) -> tuple[bytes, bytes]:
    """Create a certificate with the API server's name and group, possibly with other usages."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    names = [(x509.NameOID.ORGANIZATION_NAME, API_SERVER.organizations[0]), (x509.NameOID.COMMON_NAME, API_SERVER.common_name)]
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in names]))
        .issuer_name(x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
    )
    certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    return certificate, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def test_only_client_certificates_of_the_cluster_ca_are_accepted():
    ours, other = trustme.CA(), trustme.CA()
    agent = Agent("node-1", [pod()])
    client, serving = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH
    cases = {"ours": (ours, client), "for servers": (ours, serving), "another CA's": (other, client)}

    async def main() -> dict[str, object]:
        subject = KubeletServer(lambda: [agent], client_ca_pem=ours.cert_pem.bytes())  # type: ignore[list-item, return-value]
        port = await subject.start("127.0.0.1", 0)
        found: dict[str, object] = {}
        for name, (authority, usage) in cases.items():
            context = tls.client_context(None, *client_pair(authority, usage), verify=False)
            transport = aio.Transport(f"https://127.0.0.1:{port}", context=context)
            try:
                found[name] = (await transport.request("GET", "/pods")).status
            except NoAnswer:
                found[name] = None
            await transport.close()
        await subject.stop()
        return found

    assert loop.run(main) == {"ours": 200, "for servers": None, "another CA's": None}
    assert len(agent.client.asked) == 1


def test_known_tokens_are_authenticated_and_others_rejected():
    agent = Agent("node-1", [], client=Reviews("metrics"))
    subject = server(agent, rules=AccessRules(tokens=True, anonymous=True), contents=Contents(metrics=Registry()))
    assert ask(subject, "/metrics", peer=None, token="good")[0] == 200
    assert agent.client.asked[1]["groups"] == ["robots", "system:authenticated"]
    assert ask(subject, "/metrics", peer=None, token="bad") == (401, b"Unauthorized\n")
    assert ask(server(agent), "/metrics", peer=None, token="good")[0] == 401


def test_clients_without_credentials_are_anonymous_if_that_is_allowed():
    agent = Agent("node-1", [], client=Reviews())
    assert ask(server(agent, rules=AccessRules(anonymous=True)), "/pods", peer=None) == (
        403,
        b"Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
    )
    assert agent.client.asked[0]["groups"] == ["system:unauthenticated"]


def test_no_access_review_is_sent_if_everything_is_allowed():
    agent = Agent("node-1", [pod()], client=None)
    assert ask(server(agent, rules=AccessRules(anonymous=True, reviews=False)), "/pods", peer=None)[0] == 200


def test_review_results_are_cached_for_the_configured_time():
    agent = Agent("node-1", [pod()], client=Reviews("pods"))
    for seconds, asked in ((0.0, 4), (300.0, 2)):
        agent.client.asked.clear()
        subject = server(agent, rules=AccessRules(allowed_seconds=seconds, denied_seconds=seconds))

        async def twice(subject: KubeletServer = subject) -> None:
            handlers = {route.pattern: route.handler for route in subject.routes()}
            for _ in range(2):
                for path in ("/pods", "/healthz"):
                    await handlers[path](Request(method="GET", path=path, peer=SOMEBODY))

        asyncio.run(twice())
        assert len([spec for spec in agent.client.asked if spec["resourceAttributes"]["subresource"] != "proxy"]) == asked


def test_metrics_usage_and_configuration_are_served_if_available():
    contents = Contents(metrics=Registry(), usage=lambda: "usage 1\n", configuration={"kind": "KubeletConfiguration"})
    subject = server(Agent("node-1", []), contents=contents)
    assert ask(subject, "/metrics")[0] == 200
    assert ask(subject, "/metrics/resource") == (200, b"usage 1\n")
    assert ask(subject, "/configz") == (200, b'{"kubeletconfig": {"kind": "KubeletConfiguration"}}')
    assert ask(subject, "/runningpods/") == (200, b'{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}')


def test_without_debugging_handlers_the_response_is_that_of_the_kubelet():
    subject = server(Agent("node-1", [pod()]), contents=Contents(debugging=False, configuration={}))
    for path in ("/exec/default/web/app", "/containerLogs/default/web/app", "/portForward/default/web"):
        assert ask(subject, path, method="POST") == (405, b"Debug endpoints are disabled.\n")
    assert ask(subject, "/configz")[0] == 404
    assert ask(subject, "/exec/default/web/app", peer=None)[0] == 401


@pytest.mark.parametrize(
    ("path", "subresources"),
    [
        ("/pods", ("pods", "proxy")),
        ("/runningpods/", ("pods", "proxy")),
        ("/healthz/syncloop", ("healthz", "proxy")),
        ("/configz", ("configz", "proxy")),
        ("/metrics/cadvisor", ("metrics",)),
        ("/stats/summary", ("stats",)),
        ("/logs/", ("log",)),
        ("/checkpoint/a/b/c", ("checkpoint",)),
        ("/statusz", ("statusz",)),
        ("/flagz", ("configz",)),
        ("/exec/a/b/c", ("proxy",)),
        ("/", ("proxy",)),
        ("/podsy", ("proxy",)),
    ],
)
def test_a_path_requires_one_of_the_subresources_of_the_kubelet(path: str, subresources: tuple[str, ...]):
    assert subresources_of(path) == subresources
