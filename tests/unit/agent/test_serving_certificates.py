"""The kubelet API's certificate from the cluster: its names, when it is requested, and what is reported while it is missing."""

from __future__ import annotations

import asyncio
import base64
import itertools
from pathlib import Path
from typing import Any

import pytest
from agent_running import agent_of, joined, running
from agent_values import facts
from fake_api import FakeAPI
from fake_controllers import START, Controllers, LoopClock, sign
from hypothesis import given
from hypothesis import strategies as st
from test_machine_agent import MACHINE, Source

import certificate_summaries as summaries
from kubewright.agent.certificates.serving import ServingRequests
from kubewright.agent.certificates.store import SERVING, FilePairStore, PendingKey
from kubewright.agent.certificates.templates import CertificateTemplate, serving_names
from kubewright.agent.node import NodeAgent
from kubewright.pki.certificates import Pair
from kubewright.pki.names import Names
from kubewright.pki.requests import csr

pytestmark = [pytest.mark.looptime]

TWO = ("10.0.0.1", "10.0.0.2")


class Place:
    """The store of a node's serving certificates, and which were used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.used: list[Pair] = []
        self.store = FilePairStore(path, SERVING, clock=LoopClock())

    def agent(self, api: FakeAPI, source: Source | None = None, **changes: Any) -> NodeAgent:
        serving = ServingRequests(store=self.store, use=self.used.append, pending=PendingKey(self.path, SERVING))
        subject = facts(needs_pod_range=False)
        return agent_of(api, store=joined(now=START), facts=subject, source=source or Source(), serving=serving, **{**MACHINE, **changes})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def requests(api: FakeAPI) -> list[dict[str, Any]]:
    return [obj for (kind, _, _), obj in api.objects.items() if kind == "certificatesigningrequests"]


def decide(api: FakeAPI, request: dict[str, Any], kind: str, *, signs: bool = False) -> None:
    request["status"] = {"conditions": [{"type": kind, "status": "True", "reason": "Policy", "message": "so it is"}]}
    if signs:
        content = sign(base64.b64decode(request["spec"]["request"]), now=LoopClock().now(), lifetime=86400)
        request["status"]["certificate"] = base64.b64encode(content).decode()
    api.put(request)


async def test_a_registered_node_requests_its_addresses_and_uses_the_certificate(place: Place):
    api = FakeAPI()
    Controllers(api)
    async with running(place.agent(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        view = agent.view().serving
    [request] = requests(api)
    asked = summaries.of_request(base64.b64decode(request["spec"]["request"]))
    assert (asked.common_name, asked.organizations) == ("system:node:node-1", ("system:nodes",))
    assert (asked.names.dns, asked.names.ips) == (("node-1",), ("10.0.0.1",))
    assert request["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
    assert request["spec"]["usages"] == ["digital signature", "server auth"]
    assert "expirationSeconds" not in request["spec"]
    created = [(call.verb, call.what) for call in api.calls if call.verb == "create"]
    assert created.index(("create", "nodes")) < created.index(("create", "certificatesigningrequests"))
    [pair] = place.used
    assert pair.leaf.names.ips == ("10.0.0.1",)
    assert view is not None
    assert (view.expires, view.waiting, view.reason) == (pair.leaf.not_after, None, "")
    names = sorted(path.name for path in place.path.iterdir())
    assert len(names) == 2
    assert names[1] == "kubelet-server-current.pem"


async def test_the_stored_certificate_is_used_at_once_without_a_request(place: Place):
    api = FakeAPI()
    Controllers(api)
    async with running(place.agent(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
    async with running(place.agent(api)):
        await asyncio.sleep(0.01)
        assert len(place.used) == 2
        await asyncio.sleep(300)
    assert place.used[0].pem() == place.used[1].pem()
    assert len(requests(api)) == 1


async def test_a_new_address_is_requested_while_the_old_certificate_serves_and_a_lost_one_is_not(place: Place):
    api, source = FakeAPI(), Source()
    controllers = Controllers(api)
    async with running(place.agent(api, source)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        controllers.sign_after = None
        source.becomes(addresses=TWO)
        await asyncio.sleep(5)
        assert len(requests(api)) == 2
        assert len(place.used) == 1
        waits = agent.view().serving
        assert waits is not None
        assert (waits.reason, waits.expires) == ("waiting-approval", place.used[0].leaf.not_after)
        open_request = next(row for row in requests(api) if not row.get("status"))
        decide(api, open_request, "Approved")
        await asyncio.sleep(1)
        assert agent.view().serving.reason == "not-signed"  # type: ignore[union-attr]
        decide(api, open_request, "Approved", signs=True)
        await asyncio.sleep(1)
        assert place.used[1].leaf.names.ips == TWO
        source.becomes(addresses=("10.0.0.2",))
        await asyncio.sleep(300)
    assert len(requests(api)) == 2


async def test_a_request_for_addresses_that_have_changed_is_no_longer_waited_for(place: Place):
    api, source = FakeAPI(), Source()
    async with running(place.agent(api, source)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        [first] = requests(api)
        source.becomes(addresses=TWO)
        await asyncio.sleep(5)
        assert len(requests(api)) == 2
        decide(api, first, "Approved", signs=True)
        await asyncio.sleep(60)
        assert place.used == []
        decide(api, next(row for row in requests(api) if not row.get("status")), "Approved", signs=True)
        await asyncio.sleep(1)
    assert [pair.leaf.names.ips for pair in place.used] == [TWO]


async def test_an_address_that_comes_back_ends_the_wait(place: Place):
    api, source = FakeAPI(), Source()
    controllers = Controllers(api)
    async with running(place.agent(api, source)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        controllers.sign_after = None
        source.becomes(addresses=TWO)
        await asyncio.sleep(5)
        source.becomes(addresses=("10.0.0.1",))
        await asyncio.sleep(2000)
        view = agent.view().serving
    assert view is not None
    assert (view.waiting, view.reason, len(requests(api))) == (None, "", 2)
    assert not PendingKey(place.path, SERVING).exists


async def test_an_open_request_is_found_again_after_every_restart(place: Place):
    api = FakeAPI()
    for _ in range(3):
        async with running(place.agent(api)) as agent:
            await asyncio.sleep(1000)  # longer than one request is waited for
            waiting = agent.view().serving.waiting  # type: ignore[union-attr]
    [request] = requests(api)
    assert waiting is not None
    assert waiting.name == request["metadata"]["name"]
    assert (place.path / "kubelet-server.key.tmp").stat().st_mode & 0o777 == 0o600
    decide(api, request, "Approved", signs=True)
    async with running(place.agent(api)):
        await asyncio.sleep(5)
    assert len(place.used) == 1
    assert not PendingKey(place.path, SERVING).exists


async def test_a_pending_request_for_other_addresses_is_not_used_after_a_restart(place: Place):
    api = FakeAPI()
    async with running(place.agent(api)):
        await asyncio.sleep(5)
    source = Source()
    source.becomes(addresses=TWO)
    async with running(place.agent(api, source)):
        await asyncio.sleep(10)
    assert len(requests(api)) == 2
    assert summaries.of_request(base64.b64decode(requests(api)[1]["spec"]["request"])).names.ips == TWO


async def test_denied_requests_are_repeated_with_backoff(place: Place):
    api = FakeAPI()

    def deny(event: Any, obj: dict[str, Any]) -> None:
        if obj["kind"] == "CertificateSigningRequest" and not obj.get("status"):
            decide(api, obj, "Denied")

    api.reactors.append(deny)
    async with running(place.agent(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(6 * 3600)
        view = agent.view().serving
    assert view is not None
    assert view.reason == "denied:Policy"
    assert "Policy: so it is" in view.trouble
    moments = [call.at for call in api.made("create", "certificatesigningrequests")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert gaps[0] < 3
    assert 1800 <= gaps[-1] <= 1981
    assert len(moments) < 25
    assert view.errors == len(moments)


async def test_a_signer_that_omits_an_address_is_not_asked_repeatedly(place: Place):
    api, source = FakeAPI(), Source()
    Controllers(api)
    async with running(place.agent(api, source)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        api.reactors.clear()
        source.becomes(addresses=TWO)
        await asyncio.sleep(1)
        second = next(row for row in requests(api) if not row.get("status"))
        key = PendingKey(place.path, SERVING).take()
        named = csr.request(key, common_name="system:node:node-1", organizations=("system:nodes",), names=Names(ips=("10.0.0.1",)))
        content = base64.b64encode(sign(named, now=LoopClock().now(), lifetime=86400)).decode()
        api.put({**second, "status": {"conditions": [{"type": "Approved", "status": "True"}], "certificate": content}})
        await asyncio.sleep(600)
    assert len(requests(api)) == 2
    assert len(place.used) == 2


async def test_every_reason_for_a_missing_request_has_a_word(place: Place):
    api = FakeAPI()
    api.fail("create", "certificatesigningrequests")
    async with running(place.agent(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(5)
        view = agent.view().serving
    assert view is not None
    assert (view.waiting, view.reason, view.trouble) == (None, "failed", "broken")


async def test_a_stored_certificate_that_cannot_be_read_is_replaced(place: Place):
    (place.path / "kubelet-server-2026.pem").write_text("nothing")
    (place.path / "kubelet-server-current.pem").symlink_to(place.path / "kubelet-server-2026.pem")
    api = FakeAPI()
    Controllers(api)
    async with running(place.agent(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
    assert len(place.used) == 1


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([], None),
        ([("Hostname", "node-1")], None),
        ([("InternalDNS", "node-1.example")], None),
        ([("InternalIP", "10.0.0.2"), ("InternalIP", "10.0.0.10"), ("Hostname", "b")], Names(dns=("b",), ips=("10.0.0.10", "10.0.0.2"))),
        ([("Hostname", "10.0.0.1")], Names(ips=("10.0.0.1",))),
        (
            [("ExternalIP", "2001:DB8::1"), ("ExternalDNS", "x"), ("InternalDNS", "a"), ("Hostname", "x")],
            Names(dns=("a", "x"), ips=("2001:db8::1",)),
        ),
        ([("InternalIP", ""), ("InternalIP", "no address"), ("Other", "10.0.0.1")], None),
    ],
)
def test_names_are_those_of_the_nodes_addresses_sorted_and_once_each(rows: list[tuple[str, str]], names: Names | None):
    assert serving_names([{"type": kind, "address": text} for kind, text in rows]) == names


@given(st.lists(st.tuples(st.sampled_from(["Hostname", "InternalIP", "ExternalDNS"]), st.text(max_size=20))))
def test_no_address_of_a_node_causes_an_error(rows: list[tuple[str, str]]):
    found = serving_names([{"type": kind, "address": text} for kind, text in rows])
    assert found is None or found.ips


def test_a_template_without_names_is_the_client_certificates():
    assert CertificateTemplate(node_name="a") != CertificateTemplate(node_name="a", names=Names(ips=("10.0.0.1",)))
