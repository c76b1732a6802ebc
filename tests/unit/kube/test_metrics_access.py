"""Access to metrics: authentication by a client certificate of the cluster, or by a token that the API server reviews; health is public."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from kubewright.base.clock import Clock, FakeClock
from kubewright.base.errors import APIError, NotFound, ServerError
from kubewright.base.randomness import SeededRandom
from kubewright.http.aio import Transport
from kubewright.http.failures import NoAnswer
from kubewright.http.metrics import Registry
from kubewright.http.tls import anonymous_context, client_context, identify, server_context
from kubewright.kube import health
from kubewright.kube.daemons.delegation import DelegatedAuthorizer, trusted
from kubewright.kube.daemons.serving_identity import ClusterAuthorities, ServingIdentity, own_pair
from kubewright.kube.resources import Resource
from kubewright.pki import certificates
from kubewright.pki.keys import Algorithm

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
USERS = {"prometheus-token": "prometheus", "other-token": "other", "master-token": "admin"}


class Cluster:
    """Knows the tokens of three users; the first may get /metrics, the last is in system:masters."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: APIError | None = None
        self.authority: bytes | None = None

    async def create(self, body: dict, **_: object) -> dict:
        self.asked.append(body["kind"])
        if self.error is not None:
            raise self.error
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            name = USERS.get(spec["token"])
            if name is None:
                return {"status": {"authenticated": False}}
            groups = ["system:authenticated", *(["system:masters"] if name == "admin" else [])]
            return {"status": {"authenticated": True, "user": {"username": name, "uid": "u", "groups": groups}}}
        attributes = spec["nonResourceAttributes"]
        return {"status": {"allowed": (spec["user"], attributes) == ("prometheus", {"path": "/metrics", "verb": "get"})}}

    async def get(self, resource: Resource, name: str, namespace: str) -> dict:
        assert (resource.plural, name, namespace) == ("configmaps", "extension-apiserver-authentication", "kube-system")
        if self.authority is None:
            raise NotFound("there is no such ConfigMap", code=404)
        return {"data": {"client-ca-file": self.authority.decode()}}


class Serving:
    def __init__(self, server, cluster: Cluster, shown: ssl.SSLContext | None = None) -> None:
        self.cluster = cluster
        self._server = server
        self._transport = Transport(f"https://127.0.0.1:{server.port}", context=shown or anonymous_context(None, verify=False))

    async def get(self, path: str, token: str = "", method: str = "GET") -> tuple[int, str]:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = await self._transport.request(method, path, headers=headers)
        return answer.status, answer.body.decode()

    async def close(self) -> None:
        await self._transport.close()
        await self._server.stop()


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    made = own_pair(name="localhost", algorithm=Algorithm.ECDSA_P256, now=NOW, random=SeededRandom(1))
    return server_context(*made)


async def serve(
    context: ssl.SSLContext,
    *,
    authentication: bool = True,
    authorization: bool = True,
    ready: str = "",
    shown: ssl.SSLContext | None = None,
    cluster: Cluster | None = None,
    clock: Clock | None = None,
    identity: ServingIdentity | None = None,
) -> Serving:
    cluster = cluster or Cluster()
    authorizer = DelegatedAuthorizer(
        authentication=cluster if authentication else None,
        authorization=cluster if authorization else None,
        clock=clock,
        trusts=identity.trusts if identity else trusted,
    )
    registry = Registry()
    registry.counter("things_total", "Things.").add()
    server = await health.serve_health(
        host="127.0.0.1", port=0, context=context, ready=lambda: ready, metrics=registry, authorizer=authorizer
    )
    return Serving(server, cluster, shown)


async def test_metrics_require_authorization(context):
    serving = await serve(context)
    found = {token: await serving.get("/metrics", token) for token in ("", "made-up", *USERS)}
    assert {token: status for token, (status, _) in found.items()} == {
        "": 403,
        "made-up": 401,
        "prometheus-token": 200,
        "other-token": 403,
        "master-token": 200,
    }
    assert "things_total 1.0" in found["prometheus-token"][1]
    assert "process_cpu_seconds_total" in found["prometheus-token"][1]
    assert "things" not in found[""][1] + found["other-token"][1] + found["made-up"][1]
    await serving.close()


async def test_health_is_public_and_needs_no_review(context):
    serving = await serve(context, ready="not yet")
    assert [await serving.get(path) for path in ("/healthz", "/livez", "/readyz")] == [(200, "ok"), (200, "ok"), (503, "not yet")]
    assert (await serving.get("/healthz", "made-up"))[0] == 200
    assert serving.cluster.asked == []
    await serving.close()


async def test_unauthorized_clients_do_not_learn_which_paths_exist(context):
    serving = await serve(context)
    for path, method in (("/metrics", "POST"), ("/debug/pprof/", "GET"), ("/healthz", "DELETE"), ("/healthz/x", "GET"), ("/", "GET")):
        assert (await serving.get(path, "other-token", method))[0] == 403
    assert (await serving.get("/debug/pprof/", "master-token"))[0] == 404
    await serving.close()


@pytest.mark.parametrize(("authentication", "authorization", "status"), [(False, True, 401), (True, False, 403)])
async def test_nothing_is_served_without_a_kubeconfig_for_reviews(context, authentication, authorization, status):
    serving = await serve(context, authentication=authentication, authorization=authorization)
    assert (await serving.get("/metrics", "prometheus-token"))[0] == status
    assert (await serving.get("/metrics"))[0] == 403
    await serving.close()


async def test_review_results_are_cached(context):
    serving = await serve(context)
    for _ in range(5):
        assert (await serving.get("/metrics", "prometheus-token"))[0] == 200
        assert (await serving.get("/metrics", "made-up"))[0] == 401
    assert sorted(serving.cluster.asked) == ["SubjectAccessReview", "TokenReview", "TokenReview"]
    await serving.close()


async def test_nothing_is_served_or_cached_if_the_api_server_does_not_answer(context):
    serving = await serve(context)
    serving.cluster.error = ServerError("down", code=500)
    assert (await serving.get("/metrics", "prometheus-token"))[0] == 401
    status, text = await serving.get("/metrics")
    assert (status, "things" in text) == (500, False)
    serving.cluster.error = None
    assert (await serving.get("/metrics", "prometheus-token"))[0] == 200
    await serving.close()


async def test_a_scraper_that_requests_openmetrics_gets_it(context):
    registry = Registry()
    assert registry.read("application/openmetrics-text; version=1.0.0").headers["content-type"].startswith("application/openmetrics-text")
    assert registry.read("").headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("name", "groups", "status"), [("prometheus", ("scrapers",), 200), ("other", (), 403), ("admin", ("system:masters",), 200)]
)
async def test_a_client_certificate_of_the_cluster_authenticates(context, name, groups, status):
    pki = trustme.CA()
    cluster = Cluster()
    cluster.authority = pki.cert_pem.bytes()
    authorities = ClusterAuthorities(cluster)
    await authorities.look()
    own = certificates.pair_of(*own_pair(name="a", algorithm=Algorithm.ECDSA_P256, now=NOW, random=SeededRandom(1)), source="own")
    serving = await serve(
        ServingIdentity(lambda: own, client_ca=authorities).context(), cluster=cluster, shown=client_of(pki, name, groups)
    )
    assert (await serving.get("/metrics"))[0] == status
    assert serving.cluster.asked == ([] if "system:masters" in groups else ["SubjectAccessReview"])
    await serving.close()


async def test_a_client_certificate_does_not_authenticate_after_it_has_expired():
    pki, cluster, clock = trustme.CA(), Cluster(), FakeClock(datetime.now(UTC))
    own = certificates.pair_of(*own_pair(name="a", algorithm=Algorithm.ECDSA_P256, now=NOW, random=SeededRandom(1)), source="own")
    identity = ServingIdentity(lambda: own, client_ca=pki.cert_pem.bytes).context()
    serving = await serve(identity, cluster=cluster, shown=client_of(pki, "admin", ("system:masters",)), clock=clock)
    assert (await serving.get("/metrics"))[0] == 200
    clock.advance(2 * 3600)
    assert (await serving.get("/metrics"))[0] == 401
    assert (await serving.get("/metrics", "prometheus-token"))[0] == 200
    await serving.close()


async def test_a_client_certificate_does_not_authenticate_after_its_ca_was_removed():
    pki, other, cluster = trustme.CA(), trustme.CA(), Cluster()
    own = certificates.pair_of(*own_pair(name="a", algorithm=Algorithm.ECDSA_P256, now=NOW, random=SeededRandom(1)), source="own")
    bundles = [pki.cert_pem.bytes()]
    identity = ServingIdentity(lambda: own, client_ca=lambda: bundles[-1])
    shown = client_of(pki, "admin", ("system:masters",))
    serving = await serve(identity.context(), cluster=cluster, shown=shown, identity=identity)
    found = []
    for bundle in (bundles[0], bundles[0] + other.cert_pem.bytes(), other.cert_pem.bytes(), b""):
        bundles.append(bundle)
        found.append((await serving.get("/metrics"))[0])
    assert found == [200, 200, 401, 401]
    await serving.close()


async def test_a_client_certificate_of_another_ca_does_not_authenticate(context):
    pki, other = trustme.CA(), trustme.CA()
    cluster = Cluster()
    cluster.authority = other.cert_pem.bytes()
    authorities = ClusterAuthorities(cluster)
    own = certificates.pair_of(*own_pair(name="a", algorithm=Algorithm.ECDSA_P256, now=NOW, random=SeededRandom(1)), source="own")
    identity = ServingIdentity(lambda: own, client_ca=authorities).context()
    for _ in range(2):  # first CAs of others, then those of another CA
        serving = await serve(identity, cluster=cluster, shown=client_of(pki, "admin", ("system:masters",)))
        with pytest.raises(NoAnswer):
            await serving.get("/metrics")
        await serving.close()
        without = await serve(identity, cluster=cluster)
        assert (await without.get("/metrics", "prometheus-token"))[0] == 200
        await without.close()
        await authorities.look()


async def test_unreadable_cas_keep_the_previous_ones():
    pki, cluster = trustme.CA(), Cluster()
    authorities = ClusterAuthorities(cluster)
    await authorities.look()
    assert authorities() == b""
    cluster.authority = pki.cert_pem.bytes()
    await authorities.look()
    assert authorities() == cluster.authority
    for broken in (None, b"", b"no PEM"):
        cluster.authority = broken
        await authorities.look()
        assert authorities() == pki.cert_pem.bytes()


def client_of(pki: trustme.CA, name: str, groups: tuple[str, ...]) -> ssl.SSLContext:
    """A client with a certificate of this user, which does not verify the server."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            *(x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, name),
        ]
    )
    private = load_pem_private_key(pki.private_key_pem.bytes(), None)
    issuer = x509.load_pem_x509_certificate(pki.cert_pem.bytes()).subject
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), 7, now - timedelta(hours=1), now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(private, hashes.SHA256())
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    context = client_context(None, verify=False)
    identify(context, made.public_bytes(Encoding.PEM), text)
    return context


@pytest.mark.looptime
async def test_review_results_expire_after_ten_seconds():
    import asyncio

    cluster = Cluster()
    authorizer = DelegatedAuthorizer(authentication=cluster, authorization=cluster)
    for _ in range(3):
        await authorizer.require("Bearer prometheus-token", verb="get", path="/metrics")
        await asyncio.sleep(10)
    assert cluster.asked == ["TokenReview", "SubjectAccessReview"] * 3
