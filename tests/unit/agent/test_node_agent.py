"""One agent with an API in memory, in virtual time: joining, registration, heartbeats, rotation."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest
from agent_running import CLUSTER, TOKEN, MemoryCredentialStore, agent_of, joined, running
from agent_values import facts, stored
from fake_api import Call, FakeAPI
from fake_controllers import START, Controllers

from kubewright.agent import leases, registration
from kubewright.agent.dependencies import Timings
from kubewright.agent.view import NodePhase
from kubewright.base.errors import CertificateError, Forbidden, TooManyRequests, Unauthorized
from kubewright.base.events import RecordingReporter, State
from kubewright.kube.credentials import Anonymous, ClientCertificate
from kubewright.kube.resources import LEASE, NODE

pytestmark = [pytest.mark.looptime]


def last_request(api: FakeAPI) -> str:
    return [name for plural, _, name in api.objects if plural == "certificatesigningrequests"][-1]


async def test_a_machine_joins_and_becomes_ready():
    api, store, reporter = FakeAPI(), MemoryCredentialStore(), RecordingReporter()
    Controllers(api, sign_after=0.05, range_after=0.05)
    async with running(agent_of(api, store=store, reporter=reporter)) as agent:
        await agent.ready.wait()
        view = agent.view()
    assert (view.phase, view.ready, view.trouble) == (NodePhase.READY, True, "")
    assert view.certificate.expires is not None
    assert list(view.reached) == ["Joining", "Registering", "WaitingForPodRange", "Ready"]
    assert view.reached["Ready"] < 0.5
    assert [event.state for event in reporter.events if isinstance(event, State)][-1] == "Stopped"
    assert len(store.pairs) == 1
    access = store.cluster()
    assert access is not None
    assert access == CLUSTER
    assert access.identity == Anonymous()


async def test_the_token_is_used_for_the_request_and_the_certificate_for_everything_else():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
    requests = [call for call in api.calls if call.what == "certificatesigningrequests"]
    others = [call for call in api.calls if call.what != "certificatesigningrequests"]
    assert [(call.verb, call.identity) for call in requests] == [("create", TOKEN.identity), ("watch", TOKEN.identity)]
    assert len(others) >= 6
    assert {type(call.identity) for call in others} == {ClientCertificate}
    assert len({call.identity for call in others}) == 1


async def test_a_stored_certificate_is_used_without_a_request():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
    assert api.made("create", "certificatesigningrequests") == []


@pytest.mark.parametrize(
    "pair",
    [{"lifetime": 100, "now": START - timedelta(seconds=200)}, {"name": "node-2"}, {"group": "others"}],
    ids=["expired", "of another node", "without the group"],
)
async def test_an_unusable_stored_certificate_is_replaced(pair: dict[str, Any]):
    api, store = FakeAPI(), joined(**pair)
    Controllers(api)
    async with running(agent_of(api, store=store)) as agent:
        await agent.ready.wait()
    assert len(api.made("create", "certificatesigningrequests")) == 1
    assert len(store.pairs) == 2


async def test_an_unreadable_store_leads_to_a_new_join():
    class Broken(MemoryCredentialStore):
        def pair(self):
            raise CertificateError("not PEM")

    api, store = FakeAPI(), Broken(CLUSTER)
    Controllers(api)
    async with running(agent_of(api, store=store)) as agent:
        await agent.ready.wait()
    assert len(store.pairs) == 1


async def test_missing_permissions_are_reported_briefly(looptime):
    api = FakeAPI()
    Controllers(api)
    api.fail("create", "certificatesigningrequests", times=1, error=Forbidden("RBAC: [clusterrole a not found]", code=403))
    async with running(agent_of(api)) as agent:
        await asyncio.sleep(1)
        assert agent.view().trouble.startswith("it may not request a certificate yet")
        assert "RBAC:" not in agent.view().trouble
        await agent.ready.wait()


async def test_a_refused_token_is_retried_and_reported(looptime):
    api = FakeAPI()
    Controllers(api)
    api.fail("create", "certificatesigningrequests", times=2, error=Unauthorized("no such token", code=401))
    async with running(agent_of(api)) as agent:
        await asyncio.sleep(1)
        assert agent.view().phase is NodePhase.JOINING
        assert agent.view().trouble == "no such token"
        await agent.ready.wait()
        assert agent.view().trouble == ""
    assert 6.0 <= looptime <= 7.5


async def test_an_unsigned_request_is_repeated_after_fifteen_minutes():
    api = FakeAPI()
    controllers = Controllers(api)
    controllers.sign_after = None
    async with running(agent_of(api)) as agent:
        await asyncio.sleep(899)
        assert len(api.made("create", "certificatesigningrequests")) == 1
        await asyncio.sleep(4)
        assert "not signed within 900 s" in agent.view().trouble
        assert len(api.made("create", "certificatesigningrequests")) == 2


async def test_a_broken_watch_of_the_request_is_reopened():
    api = FakeAPI()
    Controllers(api, sign_after=5)
    async with running(agent_of(api)) as agent:
        await asyncio.sleep(1)
        api.break_watches()
        await agent.ready.wait()
    assert [call.verb for call in api.calls if call.what == "certificatesigningrequests"] == ["create", "watch", "watch"]


async def test_registration_waits_grow_and_never_end():
    api = FakeAPI()
    Controllers(api)
    api.fail("create", "nodes", times=9)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
    moments = [call.at for call in api.made("create", "nodes")]
    waits = [later - earlier for earlier, later in zip([0.0, *moments], moments, strict=False)]
    assert [round(wait, 3) for wait in waits] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0, 7.0]


async def test_a_new_node_needs_one_post_and_one_patch():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(100)
    assert len(api.made("create", "nodes")) == 1
    assert len(api.made("patch", "nodes/status")) == 1


@pytest.mark.parametrize("error", [None, Forbidden("no", code=403)], ids=["409", "403"])
async def test_an_existing_node_that_fits_is_read_and_not_corrected(error: Any):
    api = FakeAPI()
    api.put(stored(registration.first_node(facts(), now="2026-01-01T00:00:00Z"), podCIDR="10.128.9.0/24"))
    if error is not None:
        api.fail("create", "nodes", error=error)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
    assert [(call.verb, call.what) for call in api.calls if call.what.startswith("nodes")] == [
        ("create", "nodes"),
        ("get", "nodes"),
        ("patch", "nodes/status"),
    ]


async def test_an_existing_node_is_corrected_according_to_the_rules():
    api = FakeAPI()
    existing = stored(registration.first_node(facts(), now="2026-01-01T00:00:00Z"), podCIDR="10.128.9.0/24")
    existing["metadata"]["labels"]["kubernetes.io/hostname"] = "wrong"
    existing["metadata"]["labels"]["theirs"] = "stays"
    api.put(existing)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
    bodies = [call.body for call in api.made("patch", "nodes/status")]
    assert len(bodies) == 2
    assert bodies[0] == {"metadata": {"labels": {"kubernetes.io/hostname": "node-1"}}}
    assert api.get(NODE, "node-1")["metadata"]["labels"]["theirs"] == "stays"


async def test_a_node_without_a_pod_range_checks_less_and_less_often():
    api = FakeAPI()
    controllers = Controllers(api)
    controllers.range_after = None
    async with running(agent_of(api, store=joined())) as agent:
        await asyncio.sleep(60)
        assert agent.view().phase is NodePhase.CONNECTING
        looks = len(api.made("get", "nodes"))
        assert 75 <= looks <= 85
        controllers._give_range("node-1")
        await asyncio.sleep(10.5)
        assert agent.view().ready


async def test_a_pod_range_assigned_during_a_status_update_makes_the_node_ready_at_once():
    api = FakeAPI()
    controllers = Controllers(api)
    controllers.range_after = None

    def give_range(call: Call) -> None:
        if (call.verb, call.what) == ("patch", "nodes/status") and not controllers.ranges:
            controllers._give_range("node-1")

    api.faults.append(give_range)
    async with running(agent_of(api, store=joined())) as agent:
        await asyncio.sleep(6)  # the frequent checks are over
        assert controllers.ranges == 1
        assert agent.view().ready
    assert len(api.made("patch", "nodes/status")) == 2


async def test_unchanged_status_is_sent_again_only_after_minutes():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1500)
    moments = [call.at for call in api.made("patch", "nodes/status")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert 140 <= gaps[0] <= 470
    assert len(gaps) >= 3
    assert all(300 <= gap <= 311 for gap in gaps[1:])
    assert len(api.made("get", "nodes")) <= 3


async def test_the_lease_is_renewed_without_reading_it():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(200)
    moments = [call.at for call in api.made("update", "leases")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert len(api.made("get", "leases")) == 0
    assert len(api.made("create", "leases")) == 1
    assert 17 <= len(gaps) <= 20
    assert all(10.0 <= round(gap, 3) <= 10.4 for gap in gaps)
    found = api.get(LEASE, "node-1", "kube-node-lease")
    assert found["spec"]["holderIdentity"] == "node-1"
    assert found["metadata"]["ownerReferences"][0]["uid"] == api.get(NODE, "node-1")["metadata"]["uid"]
    assert len(found["spec"]["renewTime"].partition(".")[2]) == 7


async def test_a_node_is_ready_even_if_its_lease_cannot_be_created():
    api = FakeAPI()
    Controllers(api)
    api.fail("create", "leases", times=3)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        assert len(api.made("create", "leases")) == 1
        await asyncio.sleep(12)
    assert len(api.made("create", "leases")) == 4
    assert api.get(LEASE, "node-1", "kube-node-lease")["spec"]["holderIdentity"] == "node-1"


async def test_an_existing_node_renews_its_lease_at_once():
    api = FakeAPI()
    api.put(stored(registration.first_node(facts(), now="2026-01-01T00:00:00Z"), podCIDR="10.128.9.0/24"))
    api.put(leases.new_lease(api.get(NODE, "node-1"), duration=40, now="2026-01-01T00:00:00.000000Z"))
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
    assert [call.verb for call in api.calls if call.what == "leases"] == ["get", "update"]


async def test_a_conflicting_lease_is_read_and_updated_again():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        held = api.get(LEASE, "node-1", "kube-node-lease")
        held["spec"]["holderIdentity"] = "somebody else"
        api.put(held)
        before = len(api.calls)
        await asyncio.sleep(10.5)
    assert [(call.verb, call.what) for call in api.calls[before:] if call.what == "leases"] == [
        ("update", "leases"),
        ("get", "leases"),
        ("update", "leases"),
    ]
    assert api.get(LEASE, "node-1", "kube-node-lease")["spec"]["holderIdentity"] == "somebody else"


async def test_a_lease_without_an_owner_gets_one():
    api = FakeAPI()
    Controllers(api)
    api.put({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-1", "namespace": "kube-node-lease"}})
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
    assert len(api.get(LEASE, "node-1", "kube-node-lease")["metadata"]["ownerReferences"]) == 1


async def test_five_failed_renewals_are_followed_by_a_read():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        before = len(api.calls)
        api.fail("update", "leases", times=5)
        await asyncio.sleep(10.5)
    assert [call.verb for call in api.calls[before:] if call.what == "leases"] == ["update"] * 5 + ["get", "update"]


async def test_an_overloaded_api_server_gets_heartbeats_when_it_asks_for_them():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(200)
        busy = TooManyRequests("busy", code=429, retry_after=3.0)
        for verb, what in (("update", "leases"), ("get", "leases"), ("patch", "nodes/status"), ("get", "nodes")):
            api.fail(verb, what, error=busy)
        before = len(api.calls)
        await asyncio.sleep(120)
    for kinds in ({"leases"}, {"nodes", "nodes/status"}):
        times = [call.at for call in api.calls[before:] if call.what in kinds]
        assert len(times) >= 5
        assert all(later - earlier > 2.99 for earlier, later in itertools.pairwise(times))


async def test_a_deleted_node_has_no_lease_and_causes_no_storm():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        api.remove(NODE, "node-1")
        api.remove(LEASE, "node-1", "kube-node-lease")
        before = len(api.calls)
        await asyncio.sleep(600)
    after = api.calls[before:]
    assert [call for call in after if (call.verb, call.what) == ("create", "nodes")] == []
    assert [call for call in after if (call.verb, call.what) == ("create", "leases")] == []
    assert 50 <= len(after) <= 600


async def test_conditions_set_by_a_controller_during_a_stall_are_restored():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        api.fail("update", "leases", times=40)
        api.fail("get", "leases", times=12)
        await asyncio.sleep(55)
        node = api.get(NODE, "node-1")
        for row in node["status"]["conditions"]:
            row.update(status="Unknown", reason="NodeStatusUnknown")
        api.put(node)
        await asyncio.sleep(11)
        assert {row["status"] for row in api.get(NODE, "node-1")["status"]["conditions"]} == {"False", "True"}


async def test_a_certificate_is_renewed_with_itself_and_connections_are_replaced():
    api, store = FakeAPI(), MemoryCredentialStore()
    Controllers(api, lifetime=1000)
    async with running(agent_of(api, store=store)) as agent:
        await agent.ready.wait()
        first = agent.client.access.identity
        await asyncio.sleep(1000)
        assert len(store.pairs) == 2
        second = agent.client.access.identity
        assert first != second
        creations = api.made("create", "certificatesigningrequests")
        assert [call.identity for call in creations] == [TOKEN.identity, first]
        assert [call.name for call in api.made("watch", "certificatesigningrequests")] == ["", f"metadata.name={last_request(api)}"]
        assert 0.7 * 1300 - 300 <= creations[1].at < 0.9 * 1300 - 300 + 1
        await asyncio.sleep(30)
        recent = [call for call in api.calls if call.at > creations[1].at + 12]
        assert {call.identity for call in recent} == {second}
        assert [call.identity for call in api.made("watch", "pods")] == [first, second]
        assert len(api.made("list", "pods")) == 1


async def test_failed_rotations_are_retried_while_the_certificate_is_valid():
    api, store = FakeAPI(), MemoryCredentialStore()
    Controllers(api, lifetime=1000)
    async with running(agent_of(api, store=store)) as agent:
        await agent.ready.wait()
        api.fail("create", "certificatesigningrequests", times=3)
        await asyncio.sleep(930)
        assert len(store.pairs) == 2
        assert agent.view().trouble == ""
    moments = [call.at for call in api.made("create", "certificatesigningrequests")][1:]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert len(gaps) == 3
    assert all(wanted <= gap <= wanted * 1.1 + 0.1 for wanted, gap in zip([2, 4, 8], gaps, strict=True))


async def test_an_expired_certificate_is_replaced_with_the_bootstrap_credentials():
    api, store = FakeAPI(), MemoryCredentialStore()
    controllers = Controllers(api, lifetime=1000)
    async with running(agent_of(api, store=store, timings=Timings(certificate_wait=60))) as agent:
        await agent.ready.wait()
        controllers.sign_after = None
        await asyncio.sleep(1100)
        controllers.sign_after = 0.0
        await asyncio.sleep(120)
        assert len(store.pairs) == 2
    assert api.made("create", "certificatesigningrequests")[-1].identity == TOKEN.identity


async def test_an_agent_that_is_stopped_leaves_no_task_and_no_timer():
    api = FakeAPI()
    Controllers(api)
    agent = agent_of(api, store=joined())
    async with running(agent):
        await agent.ready.wait()
        await asyncio.sleep(0.5)
        assert len(asyncio.all_tasks()) == 2, "an idle node has one task"
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert agent.client.closed
    before = len(api.calls)
    await asyncio.sleep(600)
    assert len(api.calls) == before
    assert agent.view().phase is NodePhase.STOPPED
    assert not agent.view().ready
