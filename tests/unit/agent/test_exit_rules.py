"""A node without a certificate: when its kubeconfig is written, which certificate lifetime is requested, and when the agent exits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agent_running import TOKEN, KnownCluster, agent_of, running
from agent_values import facts
from fake_api import FakeAPI
from fake_controllers import Controllers, LoopClock
from test_machine_agent import MACHINE

from kubewright.agent.certificates.store import FileCredentialStore
from kubewright.agent.dependencies import Duties, Timings
from kubewright.base.errors import CertificateError, Forbidden, KubewrightError, NotFound, ServerError, Unauthorized
from kubewright.http.failures import NoAnswer, Reason

pytestmark = [pytest.mark.looptime]

FIVE_MINUTES = 300.0


def made(api: FakeAPI, place: Path, **changes: Any) -> Any:
    store = FileCredentialStore(place / "pki", place / "kubelet.conf", clock=LoopClock())
    bootstrap = KnownCluster(TOKEN, connect=api.connect)
    return agent_of(api, store=store, bootstrap=bootstrap, facts=facts(needs_pod_range=False), **{**MACHINE, **changes})


@pytest.mark.parametrize("at_once", [True, False], ids=["rotating", "blocking"])
async def test_the_kubeconfig_is_written_at_once_with_rotation_and_otherwise_with_the_certificate(tmp_path: Path, at_once: bool):
    api = FakeAPI()
    controllers = Controllers(api)
    controllers.sign_after = None
    path = tmp_path / "kubelet.conf"
    async with running(made(api, tmp_path, duties=Duties(kubeconfig_at_once=at_once))):
        await asyncio.sleep(5)
        assert path.exists() is at_once
        before = path.read_bytes() if at_once else b""
        if at_once:
            assert str(tmp_path / "pki" / "kubelet-client-current.pem").encode() in before
    controllers.sign_after = 0.0
    async with running(
        made(api, tmp_path, duties=Duties(kubeconfig_at_once=at_once))
    ) as agent:  # a kubeconfig without a certificate is unusable
        await asyncio.wait_for(agent.ready.wait(), 60)
    assert before in {b"", path.read_bytes()}


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (Unauthorized("no", code=401), True),
        (Forbidden("no", code=403), True),
        (NotFound("no", code=404), True),
        (ServerError("broken", code=500), False),
        (NoAnswer("nobody", reason=Reason.REFUSED), False),
    ],
    ids=["unauthorized", "forbidden", "not found", "broken", "unreachable"],
)
async def test_the_agent_exits_after_five_minutes_without_a_certificate_if_the_api_server_answers(
    tmp_path: Path, error: KubewrightError, ends: bool
):
    api = FakeAPI()
    api.fail("create", "certificatesigningrequests", error=error)
    async with running(made(api, tmp_path)) as agent:
        watch = asyncio.ensure_future(agent.require_certificate(within=FIVE_MINUTES))
        await asyncio.sleep(299)
        assert not watch.done()
        await asyncio.sleep(20)
        assert watch.done() is ends
        if ends:
            with pytest.raises(CertificateError, match="no valid client certificate for 300 s"):
                watch.result()
        watch.cancel()


async def test_a_request_that_is_not_approved_does_not_end_the_agent(tmp_path: Path):
    api = FakeAPI()
    async with running(made(api, tmp_path)) as agent:
        watch = asyncio.ensure_future(agent.require_certificate(within=FIVE_MINUTES))
        await asyncio.sleep(3600)
        assert not watch.done()
        watch.cancel()


async def test_an_expired_certificate_ends_the_agent_unless_it_is_replaced(tmp_path: Path):
    api = FakeAPI()
    controllers = Controllers(api, lifetime=1000)
    async with running(made(api, tmp_path)) as agent:
        watch = asyncio.ensure_future(agent.require_certificate(within=FIVE_MINUTES))
        await asyncio.sleep(3000)
        assert not watch.done()
        controllers.sign_after = None
        api.fail("create", "certificatesigningrequests", error=Forbidden("no", code=403))
        expires = agent.view().certificate.expires
        await asyncio.sleep((expires - LoopClock().now()).total_seconds() + FIVE_MINUTES - 11)
        assert not watch.done()
        await asyncio.sleep(25)
        assert isinstance(watch.exception(), CertificateError)


@pytest.mark.parametrize("lifetime", [None, 3600])
async def test_the_configured_certificate_lifetime_is_requested(tmp_path: Path, lifetime: int | None):
    api = FakeAPI()
    Controllers(api)
    async with running(made(api, tmp_path, timings=Timings(certificate_lifetime=lifetime))) as agent:
        await agent.ready.wait()
    [asked] = api.made("create", "certificatesigningrequests")
    assert asked.body["spec"].get("expirationSeconds") == lifetime
