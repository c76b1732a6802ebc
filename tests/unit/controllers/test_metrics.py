"""Who is shown metrics: the API server is asked about the token and about the path; health is for everybody."""

from __future__ import annotations

import ssl

import pytest
from controllers_kit import NOW

from kubewright.base.clock import FakeClock
from kubewright.base.errors import APIError, ServerError
from kubewright.base.randomness import SeededRandom
from kubewright.controllers import health
from kubewright.http.aio import Transport
from kubewright.http.metrics import Registry
from kubewright.http.tls import anonymous_context
from kubewright.kube.delegation import DelegatedAuthorizer

USERS = {"prometheus-token": "prometheus", "other-token": "other", "master-token": "admin"}


class Cluster:
    """Knows the tokens of three users; the first may get /metrics, the last is of system:masters."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: APIError | None = None

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


class Serving:
    def __init__(self, server, cluster: Cluster) -> None:
        self.cluster = cluster
        self._server = server
        self._transport = Transport(f"https://127.0.0.1:{server.port}", context=anonymous_context(None, verify=False))

    async def get(self, path: str, token: str = "", method: str = "GET") -> tuple[int, str]:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = await self._transport.request(method, path, headers=headers)
        return answer.status, answer.body.decode()

    async def close(self) -> None:
        await self._transport.close()
        await self._server.stop()


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    return health.own_context(clock=FakeClock(NOW), random=SeededRandom(1))


async def serve(context: ssl.SSLContext, *, authentication: bool = True, authorization: bool = True, ready: str = "") -> Serving:
    cluster = Cluster()
    authorizer = DelegatedAuthorizer(authentication=cluster if authentication else None, authorization=cluster if authorization else None)
    registry = Registry()
    registry.counter("things_total", "Things.").add()
    server = await health.serve_health(
        host="127.0.0.1", port=0, context=context, ready=lambda: ready, metrics=registry, authorizer=authorizer
    )
    return Serving(server, cluster)


async def test_who_may_see_metrics(context):
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


async def test_health_is_for_everybody_and_asks_nobody(context):
    serving = await serve(context, ready="not yet")
    assert [await serving.get(path) for path in ("/healthz", "/livez", "/readyz")] == [(200, "ok"), (200, "ok"), (503, "not yet")]
    assert (await serving.get("/healthz", "made-up"))[0] == 200
    assert serving.cluster.asked == []
    await serving.close()


async def test_without_rights_nobody_learns_what_there_is(context):
    serving = await serve(context)
    for path, method in (("/metrics", "POST"), ("/debug/pprof/", "GET"), ("/healthz", "DELETE"), ("/healthz/x", "GET"), ("/", "GET")):
        assert (await serving.get(path, "other-token", method))[0] == 403
    assert (await serving.get("/debug/pprof/", "master-token"))[0] == 404
    await serving.close()


@pytest.mark.parametrize(("authentication", "authorization", "status"), [(False, True, 401), (True, False, 403)])
async def test_without_a_kubeconfig_to_ask_with_nothing_is_shown(context, authentication, authorization, status):
    serving = await serve(context, authentication=authentication, authorization=authorization)
    assert (await serving.get("/metrics", "prometheus-token"))[0] == status
    assert (await serving.get("/metrics"))[0] == 403
    await serving.close()


async def test_answers_are_remembered_for_a_while(context):
    serving = await serve(context)
    for _ in range(5):
        assert (await serving.get("/metrics", "prometheus-token"))[0] == 200
        assert (await serving.get("/metrics", "made-up"))[0] == 401
    assert sorted(serving.cluster.asked) == ["SubjectAccessReview", "TokenReview", "TokenReview"]
    await serving.close()


async def test_where_the_api_server_cannot_answer_nothing_is_shown_and_nothing_remembered(context):
    serving = await serve(context)
    serving.cluster.error = ServerError("down", code=500)
    assert (await serving.get("/metrics", "prometheus-token"))[0] == 401
    status, text = await serving.get("/metrics")
    assert (status, "things" in text) == (500, False)
    serving.cluster.error = None
    assert (await serving.get("/metrics", "prometheus-token"))[0] == 200
    await serving.close()


async def test_a_scraper_that_asks_for_openmetrics_gets_it(context):
    registry = Registry()
    assert registry.read("application/openmetrics-text; version=1.0.0").headers["content-type"].startswith("application/openmetrics-text")
    assert registry.read("").headers["content-type"].startswith("text/plain")


@pytest.mark.looptime
async def test_answers_are_forgotten_after_ten_seconds():
    import asyncio

    cluster = Cluster()
    authorizer = DelegatedAuthorizer(authentication=cluster, authorization=cluster)
    for _ in range(3):
        await authorizer.require("Bearer prometheus-token", verb="get", path="/metrics")
        await asyncio.sleep(10)
    assert cluster.asked == ["TokenReview", "SubjectAccessReview"] * 3
