"""Discovering a cluster with a token, with an API in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_api import FakeAPI
from fake_controllers import START, Controllers, made_pair

from kubewright.agent.certificates.bootstrap import SharedIssuer, TokenBootstrap
from kubewright.base.clock import FakeClock
from kubewright.base.errors import CertificateError, Invalid, TrustError, WaitTimeout
from kubewright.discovery import csr
from kubewright.discovery.node_requests import FIRST, RENEWED
from kubewright.kube.credentials import Access, Anonymous, BearerToken
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.pki import certificates, keys
from kubewright.pki.keys import Algorithm
from kubewright.pki.pins import Pin, of_bundle
from kubewright.tokens import cluster_info
from kubewright.tokens.strings import BootstrapTokenString

pytestmark = [pytest.mark.looptime]

TYPED = "https://10.0.0.1:6443"
NAMED = "https://10.0.0.9:6443"
TOKEN = BootstrapTokenString("abcdef", "0123456789abcdef")
CA = made_pair(now=START).certificate_pem()


def published(api: FakeAPI, *, token: BootstrapTokenString = TOKEN) -> None:
    found = cluster_info.config_map(server=NAMED, ca_pem=CA)
    text = found["data"]["kubeconfig"]
    found["data"][f"jws-kubeconfig-{token.id}"] = cluster_info.detached_signature(text, token)
    api.put(found)


async def test_the_cluster_is_discovered_verified_and_used_with_the_token():
    api = FakeAPI()
    published(api)
    bootstrap = TokenBootstrap(TYPED, TOKEN, pins=of_bundle(CA), clock=FakeClock(), connect=api.connect)
    access, issuer = await bootstrap.admit()
    assert access == Access(server=NAMED, ca_pem=CA)
    assert [(call.verb, call.what, call.identity) for call in api.calls] == [("get", "configmaps", Anonymous())] * 2
    Controllers(api)
    await issuer.obtain(wanted("node-1"), within=10)
    assert api.made("create", "certificatesigningrequests")[0].identity == BearerToken(TOKEN.text)
    await bootstrap.close()


async def test_machines_that_join_together_share_connections_but_verify_separately():
    api, made = FakeAPI(), []

    def connect(access: Access):
        made.append(api.connect(access))
        return made[-1]

    published(api)
    bootstrap = TokenBootstrap(TYPED, TOKEN, pins=of_bundle(CA), clock=FakeClock(), connect=connect)
    issuers = [(await bootstrap.admit())[1] for _ in range(3)]
    assert len(made) == 3
    assert len({id(issuer) for issuer in issuers}) == 1
    assert len(api.calls) == 6
    assert not any(client.closed for client in made)
    await bootstrap.close()
    assert all(client.closed for client in made)


async def test_a_wrong_pin_ends_the_attempt():
    api = FakeAPI()
    published(api)
    with pytest.raises(TrustError):
        await TokenBootstrap(TYPED, TOKEN, pins=[Pin(b"x" * 32)], clock=FakeClock(), connect=api.connect).admit()


async def test_a_forged_signature_ends_the_attempt():
    api = FakeAPI()
    published(api, token=BootstrapTokenString("abcdef", "fedcba9876543210"))
    with pytest.raises(TrustError):
        await TokenBootstrap(TYPED, TOKEN, clock=FakeClock(), connect=api.connect).admit()


def wanted(name: str) -> csr.RequestedCertificate:
    return csr.node_client(name, keys.generate(Algorithm.ECDSA_P256))


def desk_of(api: FakeAPI) -> SharedIssuer:
    return SharedIssuer(api.connect(Access(server=NAMED, ca_pem=CA)))


def put_status(api: FakeAPI, name: str, **status: Any) -> None:
    api.put({**api.get(CERTIFICATE_SIGNING_REQUEST, name), "status": status})


class LateAnswers:
    """Delays the answers to requests that a client creates, until `release`."""

    def __init__(self, desk: SharedIssuer) -> None:
        self._client, self._create, self._released = desk._api, desk._api.create, asyncio.Event()
        self._client.create = self._late  # type: ignore[method-assign]

    async def _late(self, obj: Any, **changes: Any) -> Any:
        created = await self._create(obj, **changes)
        await self._released.wait()
        return created

    def end(self) -> None:
        """Answer later requests at once; those made so far stay without an answer."""
        self._client.create = self._create  # type: ignore[method-assign]

    def release(self) -> None:
        self._released.set()


async def test_waiting_nodes_share_one_check_of_bindings_in_ten_seconds():
    api = FakeAPI()
    desk = desk_of(api)
    assert await asyncio.gather(*(desk.may(FIRST) for _ in range(50))) == [True] * 50
    assert len(api.made("create", "selfsubjectaccessreviews")) == 1
    api.approves = False
    assert await desk.may(FIRST)
    assert not await desk.may(RENEWED)
    await asyncio.sleep(10)
    assert not await desk.may(FIRST)
    assert len(api.made("create", "selfsubjectaccessreviews")) == 3


async def test_requests_of_many_nodes_are_watched_together():
    api = FakeAPI()
    Controllers(api, sign_after=0.5)
    desk = desk_of(api)
    found = await asyncio.gather(*(desk.obtain(wanted(f"node-{number}"), within=10) for number in range(8)))
    names = {certificates.parse(content)[0].common_name for content in found}
    assert names == {f"system:node:node-{number}" for number in range(8)}
    assert len(api.made("create", "certificatesigningrequests")) == 8
    assert len(api.made("watch", "certificatesigningrequests")) == 1
    assert api.watchers == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await desk.obtain(wanted("late"), within=10)
    assert len(api.made("watch", "certificatesigningrequests")) == 2


async def test_a_response_before_the_request_is_registered_counts():
    api = FakeAPI()
    controllers, desk = Controllers(api), desk_of(api)
    controllers.sign_after = None
    patient = asyncio.create_task(desk.obtain(wanted("patient"), within=5))
    await asyncio.sleep(0.1)
    controllers.sign_after = 0.0
    late = LateAnswers(desk)
    second = asyncio.create_task(desk.obtain(wanted("second"), within=5))
    await asyncio.sleep(1)
    late.release()
    assert certificates.parse(await second)[0].common_name == "system:node:second"
    assert len(api.made("watch", "certificatesigningrequests")) == 1
    patient.cancel()
    await asyncio.gather(patient, return_exceptions=True)


async def test_a_request_decided_before_the_shared_watch_began_counts():
    api = FakeAPI()
    controllers, desk = Controllers(api), desk_of(api)
    late = LateAnswers(desk)
    first = asyncio.create_task(desk.obtain(wanted("first"), within=60))
    await asyncio.sleep(1)
    late.end()
    controllers.sign_after = None
    second = asyncio.create_task(desk.obtain(wanted("second"), within=60))
    await asyncio.sleep(1)
    late.release()
    assert certificates.parse(await first)[0].common_name == "system:node:first"
    assert asyncio.get_running_loop().time() < 60
    assert len(api.made("watch", "certificatesigningrequests")) == 1
    assert len(api.made("get", "certificatesigningrequests")) == 1
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


async def test_a_request_deleted_before_the_shared_watch_began_ends_its_wait():
    api = FakeAPI()
    desk = desk_of(api)
    late = LateAnswers(desk)
    first = asyncio.create_task(desk.obtain(wanted("first"), within=60))
    await asyncio.sleep(1)
    late.end()
    api.remove(CERTIFICATE_SIGNING_REQUEST, "csr-00000")
    second = asyncio.create_task(desk.obtain(wanted("second"), within=60))
    await asyncio.sleep(1)
    late.release()
    with pytest.raises(CertificateError, match="deleted"):
        await first
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([{"type": "Denied", "reason": "Policy", "message": "not here"}], "was denied: Policy: not here"),
        ([{"type": "Failed"}], "could not sign"),
    ],
)
async def test_a_refusal_reaches_only_its_node(conditions: list[dict[str, str]], words: str):
    api = FakeAPI()
    desk = desk_of(api)
    refused, patient = (asyncio.create_task(desk.obtain(wanted(name), within=10)) for name in ("a", "b"))
    await asyncio.sleep(0.1)
    first = api.made("create", "certificatesigningrequests")
    assert len(first) == 2
    put_status(api, "csr-00000", conditions=conditions)
    with pytest.raises(CertificateError, match=words):
        await refused
    assert not patient.done()
    with pytest.raises(WaitTimeout, match="not signed within 10 s"):
        await patient


async def test_a_deleted_request_ends_its_wait():
    api = FakeAPI()
    desk = desk_of(api)
    asking = asyncio.create_task(desk.obtain(wanted("a"), within=10))
    await asyncio.sleep(0.1)
    put_status(api, "csr-00000", conditions=[])
    await asyncio.sleep(0.1)
    api.remove(CERTIFICATE_SIGNING_REQUEST, "csr-00000")
    with pytest.raises(CertificateError, match="deleted"):
        await asking


async def test_a_permanent_error_ends_every_wait():
    api = FakeAPI()
    api.fail("watch", "certificatesigningrequests", error=Invalid("no such watch", code=422))
    desk = desk_of(api)
    with pytest.raises(Invalid):
        await desk.obtain(wanted("a"), within=10)


async def test_a_node_that_gives_up_leaves_nothing_behind():
    api = FakeAPI()
    desk = desk_of(api)
    asking = asyncio.create_task(desk.obtain(wanted("a"), within=10))
    await asyncio.sleep(0.1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert api.watchers == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_node_can_be_stopped_while_its_response_arrives():
    api = FakeAPI()
    Controllers(api)
    desk = desk_of(api)
    asking = asyncio.create_task(desk.obtain(wanted("a"), within=10))
    while not desk._waiting:
        await asyncio.sleep(0)
    while desk._waiting:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
