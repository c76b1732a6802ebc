"""Client certificates of nodes with `clients: strict`: what fails each check, and what becomes of requests in a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

import controllers_kit
import pytest
from controllers_cluster import Cluster
from controllers_kit import NODES, NOW, condition, extension, request
from cryptography.hazmat.primitives.asymmetric import ec
from serving_kit import policy

from kubewright.apis.join_records import JoinRecord, State
from kubewright.base.errors import Conflict
from kubewright.controllers import options, requests
from kubewright.controllers.requests import CLIENT_KUBELET, Nothing, SigningRequest
from kubewright.controllers.serving import clients
from kubewright.controllers.serving.client_approver import ALARM
from kubewright.controllers.serving.clients import ClientEvidence, decide
from kubewright.controllers.serving.deciding import Approve, Deny, Wait
from kubewright.controllers.serving.evidence import Answer, Membership
from kubewright.controllers.serving.sources.interface import Look, Tools
from kubewright.http.messages import Request
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Call
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CONFIG_MAP, NODE
from kubewright.manifests import node_policy

POLICY = """apiVersion: controllers.kubewright/v1alpha1
kind: NodeApprovalPolicy
sources:
- file:
    nodes:
    - {node: a, tokens: [abcdef]}
    - {node: worker-*, tokens: [abcdef, fedcba]}
reserved: [vip]
clients: strict
"""
TOKEN, BOOTSTRAPPERS = "system:bootstrap:abcdef", ("system:bootstrappers", "system:authenticated")
SELF = {"username": "system:node:a", "groups": (NODES, "system:authenticated")}
KEYS = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
WANTED = options.selected(["servingapproving"])


def subject(name: str) -> tuple[tuple[str, str], ...]:
    return (("2.5.4.10", NODES), ("2.5.4.3", f"system:node:{name}"))


def client_csr(text: bytes | None = None, *, node: str = "a", key: Any = None, **fields: Any) -> dict[str, Any]:
    """A first request for a client certificate, with a bootstrap token."""
    wanted = {"signer": CLIENT_KUBELET, "usages": ("digital signature", "client auth"), "username": TOKEN, "groups": BOOTSTRAPPERS}
    made = request(subject=subject(node), key=key or KEYS[0]) if text is None else text
    found: dict[str, Any] = controllers_kit.csr(made, **{**wanted, **fields})
    return found


def client(text: bytes | None = None, **fields: Any) -> SigningRequest:
    return requests.read(client_csr(text, **fields))


def decided(csr: SigningRequest, found: ClientEvidence | None = None, text: str = POLICY, later: timedelta = timedelta()) -> Any:
    return decide(csr, found or ClientEvidence(), policy(text), now=NOW + later)


def recorded(**answer: Any) -> ClientEvidence:
    """Evidence with an answer of the join records."""
    return ClientEvidence(records=Answer(source="joinRecords", **answer))


ALL_SAN = [("dns", "a"), ("ip", b"\x0a\x01\x00\x07"), ("email", "a@b"), ("uri", "https://a")]
DENIED = [
    ("C1a", "Malformed", client(b"junk"), None),
    ("C1a", "Malformed", client(request(subject=subject("a"), good=False)), None),
    ("C1b", "WeakKey", client(request(subject=subject("a"), key=ec.generate_private_key(ec.SECP224R1()))), None),
    ("C1c", "SubjectMismatch", client(request(subject=(("2.5.4.10", "x"), ("2.5.4.3", "system:node:a")))), None),
    ("C1c", "SubjectMismatch", client(request(subject=(("2.5.4.10", NODES), ("2.5.4.3", "a")))), None),
    ("C1c", "SubjectMismatch", client(request(subject=subject("b")), **SELF), None),
    ("C1d", "Extensions", client(request(subject=subject("a"), extensions=[extension("1.2.3", b"\x05\x00")])), None),
    *(("C1e", "SanForm", client(request(subject=subject("a"), names=(san,))), None) for san in ALL_SAN),
    ("C1f", "Usages", client(usages=("digital signature", "server auth")), None),
    ("C1f", "Usages", client(usages=("digital signature", "key encipherment", "client auth")), None),
    ("C1g", "Lifetime", client(expiration=2160 * 3600 + 1), None),
    ("C6", "ReservedName", client(node="vip"), None),
    ("C6", "ReservedName", client(node="kubernetes"), None),
    ("C6", "ReservedName", client(node="A"), None),
    ("C2", "Renewal", client(**{**SELF, "groups": ("system:authenticated",)}), None),
    ("C2", "Renewal", client(**SELF), ClientEvidence(used=True, exists=True)),
    ("C3a", "TokenNotAllowed", client(username="system:bootstrap:000000"), None),
    ("C3a", "TokenNotAllowed", client(username="system:bootstrap:fedcba"), None),
    ("C3a", "TokenNotAllowed", client(node="other"), None),
    ("C3", "TokenNotAllowed", client(username="system:serviceaccount:kube-system:x"), None),
    ("C3", "TokenNotAllowed", client(), ClientEvidence(token_key="the bootstrap token was used for worker-1, with another key")),
    ("C1h", "KeyReuse", client(), ClientEvidence(key_holder="system:node:b for x")),
    ("C2a", "Superseded", client(**SELF), ClientEvidence(exists=True, newer="csr-2")),
    ("C2e", "Revoked", client(**SELF), recorded(membership=Membership.LEFT)),
    ("C2f", "UnknownCredential", client(**SELF), recorded(membership=Membership.OTHER_CREDENTIAL)),
]
WAITING = [
    ("C2b", client(**SELF), ClientEvidence(exists=True, recent=13), POLICY),
    ("C2c", client(**SELF), recorded(problem="locked"), POLICY),
    ("C2c", client(), recorded(problem="locked"), POLICY),
    ("C2d", client(**SELF), recorded(membership=Membership.NO_RECORD), POLICY),
    ("C4", client(), ClientEvidence(exists=True), POLICY),
    ("C4", client(), ClientEvidence(name_key=True), POLICY),
    ("C4", client(), recorded(gives=frozenset({"a"})), POLICY),
    ("C4", client(), recorded(foreign={"a": "b"}), POLICY),
    ("C5", client(), None, POLICY + "approval: human\n"),
]


@pytest.mark.parametrize(("check", "reason", "csr", "found"), DENIED, ids=[f"{row[0]}-{index}" for index, row in enumerate(DENIED)])
def test_a_request_that_fails_a_check_is_denied_with_the_reason(check, reason, csr, found):
    outcome = decided(csr, found, later=timedelta(seconds=5))
    assert isinstance(outcome, Deny)
    assert (outcome.check, outcome.reason) == (check, reason)


@pytest.mark.parametrize(("check", "csr", "found", "text"), WAITING, ids=[f"{row[0]}-{index}" for index, row in enumerate(WAITING)])
def test_requests_for_taken_names_and_those_that_depend_on_others_wait_for_a_day(check, csr, found, text):
    outcome = decided(csr, found, text)
    assert isinstance(outcome, Wait)
    assert outcome.check == check
    stale = decided(csr, found, text, later=timedelta(days=1))
    assert isinstance(stale, Deny)
    assert (stale.check, stale.reason) == (check, "Stale")


@pytest.mark.parametrize(
    ("csr", "found"),
    [
        (client(), None),
        (client(node="worker-7"), None),
        (client(), ClientEvidence(newer="csr-2", recent=13)),  # several machines may have one token
        (client(), recorded(membership=Membership.LEFT)),  # the name is free again
        (client(), recorded(membership=Membership.NO_RECORD)),
        (client(), recorded(membership=Membership.OTHER_CREDENTIAL)),
        (client(**SELF), ClientEvidence(exists=True, name_key=True, recent=12)),
        (client(**SELF), recorded(membership=Membership.MEMBER, gives=frozenset({"a"}))),
    ],
)
def test_a_first_request_with_its_token_and_a_renewal_with_a_new_key_are_approved(csr, found):
    assert isinstance(decided(csr, found), Approve)
    assert isinstance(decided(csr, found, POLICY + "approval: human\n"), Approve if csr.username == SELF["username"] else Wait)


@pytest.mark.parametrize("csr", [client(conditions=[condition("Denied")]), client(signer="kubernetes.io/kubelet-serving")])
def test_requests_of_others_and_decided_ones_are_left_alone(csr):
    assert isinstance(decided(csr), Nothing)


def test_only_a_token_without_a_row_waits_some_seconds_for_one():
    early = [(row[0], type(decided(row[2], row[3], later=timedelta(seconds=4)))) for row in DENIED]
    assert {check for check, kind in early if kind is Wait} == {"C3a"}
    assert {check for check, kind in early if kind is Deny} == {row[0] for row in DENIED} - {"C3a"}


def test_every_check_has_a_request_that_fails_it_first():
    rows = {row[0]: (row[2], row[3], POLICY) for row in DENIED} | {row[0]: row[1:] for row in WAITING}
    assert set(rows) == {check.id for check in clients.CHECKS}
    for check, (csr, found, text) in rows.items():
        failed = [one.check.id for one in clients.results(csr, found or ClientEvidence(), policy(text)) if one.problem]
        assert failed[0] == check


def running(*objects: dict, text: str = POLICY, allowed: tuple[str, ...] = ()) -> Cluster:
    return Cluster(node_policy.used_tokens(), *objects, wanted=WANTED, policy=text, allowed=allowed)


def kinds(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    return [(one["type"], one["reason"]) for one in cluster.csr(name)["status"].get("conditions", [])]


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


@pytest.mark.looptime
async def test_the_first_key_of_a_token_wins():
    async with running(client_csr(node="worker-1", name="first")).running() as cluster:
        assert kinds(cluster, "first") == [("Approved", "NodeJoinPolicy")]
        cluster.api.put(client_csr(node="worker-2", name="second", key=KEYS[1]))
        cluster.api.put(client_csr(node="worker-1", name="again"))
        cluster.api.put(client_csr(node="worker-1", name="thief", key=KEYS[2], username="system:bootstrap:fedcba"))
        await asyncio.sleep(1)
        assert kinds(cluster, "second") == [("Denied", "TokenNotAllowed")]
        assert kinds(cluster, "again") == [("Approved", "NodeJoinPolicy")]
        assert kinds(cluster, "thief") == []


@pytest.mark.looptime
async def test_a_token_is_tied_to_its_key_after_the_request_is_deleted_and_after_a_restart():
    async with running(client_csr(node="worker-1", name="first")).running() as cluster:
        assert kinds(cluster, "first") == [("Approved", "NodeJoinPolicy")]
    stored = cluster.api.get(CONFIG_MAP, node_policy.USED_TOKENS, "kube-system")
    assert [(token, text.split()[2]) for token, text in stored["data"].items()] == [("abcdef", "worker-1")]
    cluster.api.remove(CERTIFICATE_SIGNING_REQUEST, "first")
    async with Cluster(stored, client_csr(node="worker-1", name="again"), wanted=WANTED, policy=POLICY, allowed=()).running() as later:
        assert kinds(later, "again") == [("Approved", "NodeJoinPolicy")]
        later.api.put(client_csr(node="worker-2", name="thief", key=KEYS[1]))
        await asyncio.sleep(1)
        assert kinds(later, "thief") == [("Denied", "TokenNotAllowed")]
    assert later.api.get(CONFIG_MAP, node_policy.USED_TOKENS, "kube-system")["data"] == stored["data"]


@pytest.mark.looptime
async def test_a_token_of_a_request_that_a_person_has_approved_is_tied_to_its_key_too():
    async with running(client_csr(node="worker-1", name="first"), text=f"{POLICY}approval: human\n").running() as cluster:
        waiting = cluster.csr("first")
        cluster.api.put({**waiting, "status": {"conditions": [condition("Approved")]}})
        await asyncio.sleep(1)
        stored = cluster.api.get(CONFIG_MAP, node_policy.USED_TOKENS, "kube-system")
        assert [(token, text.split()[2]) for token, text in stored["data"].items()] == [("abcdef", "worker-1")]
        cluster.api.put(client_csr(node="worker-2", name="thief", key=KEYS[1]))
        await asyncio.sleep(1)
        assert kinds(cluster, "thief") == [("Denied", "TokenNotAllowed")]


@pytest.mark.looptime
async def test_no_token_is_accepted_while_it_is_not_known_which_ones_were_used():
    requested = (client_csr(node="worker-1", name="waits"), client_csr(name="renewal", key=KEYS[1], **SELF))
    async with Cluster(*requested, wanted=WANTED, policy=POLICY, allowed=()).running() as cluster:
        assert (kinds(cluster, "waits"), kinds(cluster, "renewal")) == ([], [("Approved", "NodeJoinPolicy")])
        cluster.api.put(node_policy.used_tokens())
        await asyncio.sleep(60)
        assert kinds(cluster, "waits") == [("Approved", "NodeJoinPolicy")]


class FailsOnce(AsyncKubeAPI):
    """Loses the first write to each request: it is not carried out."""

    def __init__(self, inner: AsyncKubeAPI) -> None:
        self._inner = inner
        self._lost: set[str] = set()

    async def send(self, call: Call, /) -> dict[str, Any]:
        if call.subresource == "approval" and call.name not in self._lost:
            self._lost.add(str(call.name))
            raise Conflict("somebody else has changed it", code=409)
        return await self._inner.send(call)

    def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        return self._inner.stream(call)

    async def exchange(self, request: Request, /) -> Any:
        return await self._inner.exchange(request)


@pytest.mark.looptime
async def test_a_request_whose_approval_could_not_be_written_is_approved_later():
    objects = (node_policy.used_tokens(), client_csr(node="worker-1", name="first"), client_csr(name="renewal", key=KEYS[1], **SELF))
    cluster = Cluster(*objects, wanted=WANTED, policy=POLICY, allowed=(), through=FailsOnce)
    async with cluster.running(30):
        assert [kinds(cluster, name) for name in ("first", "renewal")] == [[("Approved", "NodeJoinPolicy")]] * 2
        cluster.api.put(client_csr(name="again", key=KEYS[1], **SELF))
        await asyncio.sleep(30)
        assert kinds(cluster, "again") == [("Denied", "Renewal")]


@pytest.mark.looptime
async def test_the_name_of_a_node_is_taken_until_the_node_is_deleted():
    async with running(node("a"), client_csr(name="taken")).running() as cluster:
        assert kinds(cluster, "taken") == []
        cluster.api.remove(NODE, "a")
        await asyncio.sleep(1)
        assert kinds(cluster, "taken") == [("Approved", "NodeJoinPolicy")]


class Hub:
    """The join record of the node a in a hub, and what happens while it is read."""

    def __init__(self, state: State | None) -> None:
        self.record = JoinRecord(cluster="c", node="a", state=state, protocol="p", request="r", key="k") if state is not None else None
        self.meanwhile: Callable[[], object] = lambda: None

    async def version(self) -> int:
        return 0 if self.record is None else 1

    async def look_up(self, node: str, names: frozenset[str]) -> Look:
        await asyncio.sleep(0.1)
        self.meanwhile()
        mine = self.record if self.record is not None and self.record.node == node else None
        return Look(version=await self.version(), record=mine, owners=dict.fromkeys(names & mine.held, node) if mine is not None else {})

    async def close(self) -> None: ...


BY_RECORDS = POLICY.replace("sources:", "sources:\n- joinRecords: {state: /hub.db, keyFile: /hub.key, cluster: c}")


def joined_through(hub: Hub, *objects: dict[str, Any], text: str = BY_RECORDS, **how: Any) -> Cluster:
    tools = Tools(read=lambda _: None, records=lambda _: hub)
    return Cluster(node_policy.used_tokens(), *objects, wanted=WANTED, policy=text, allowed=(), tools=tools, **how)


@pytest.mark.looptime
@pytest.mark.parametrize(("state", "conditions"), [(State.LEFT, [("Denied", "Revoked")]), (State.ISSUED, [("Approved", "NodeJoinPolicy")])])
async def test_a_node_that_has_left_its_hub_does_not_renew_its_client_certificate(state, conditions):
    async with joined_through(Hub(state), node("a"), client_csr(name="renewal", **SELF)).running() as cluster:
        assert kinds(cluster, "renewal") == conditions


@pytest.mark.looptime
async def test_a_token_does_not_give_the_name_of_a_node_that_has_joined_through_a_hub_until_that_has_left():
    hub = Hub(State.ISSUED)
    async with joined_through(hub, client_csr(name="taken")).running(10) as cluster:
        assert kinds(cluster, "taken") == []
        hub.record = None
        await asyncio.sleep(3)
        assert kinds(cluster, "taken") == [("Approved", "NodeJoinPolicy")]


@pytest.mark.looptime
async def test_a_policy_that_changes_while_join_records_are_read_decides():
    hub = Hub(State.LEFT)
    cluster = joined_through(hub, client_csr(name="first"))
    hub.meanwhile = lambda: cluster.set_policy(POLICY.replace("[abcdef]", "[]"))
    async with cluster.running(10):
        cluster.api.put(client_csr(name="later", key=KEYS[1]))
        await asyncio.sleep(10)
        assert kinds(cluster, "later") == [("Denied", "TokenNotAllowed")]


class SlowNotes(FailsOnce):
    """Takes half a minute to note that a token was used, and loses no write. `meanwhile` is called then."""

    def __init__(self, inner: AsyncKubeAPI, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._meanwhile = meanwhile

    async def send(self, call: Call, /) -> dict[str, Any]:
        if call.resource == CONFIG_MAP and call.body is not None:
            self._meanwhile()
            await asyncio.sleep(30)
        return await self._inner.send(call)


@pytest.mark.looptime
async def test_a_policy_that_changes_while_the_use_of_a_token_is_noted_decides():
    def through(inner: AsyncKubeAPI) -> AsyncKubeAPI:
        return SlowNotes(inner, lambda: cluster.set_policy(BY_RECORDS))

    cluster = joined_through(Hub(State.ISSUED), client_csr(name="taken"), text=POLICY, through=through)
    async with cluster.running(60):
        assert kinds(cluster, "taken") == [], "a node with this name has joined through the hub"


@pytest.mark.looptime
async def test_of_two_open_renewals_of_a_node_the_older_is_superseded():
    newer = client_csr(name="newer", key=KEYS[1], created="2026-01-02T03:04:06Z", **SELF)
    async with running(node("a"), client_csr(name="older", **SELF), newer).running() as cluster:
        assert (kinds(cluster, "older"), kinds(cluster, "newer")) == ([("Denied", "Superseded")], [("Approved", "NodeJoinPolicy")])


@pytest.mark.looptime
async def test_a_policy_that_leaves_clients_to_the_stock_approver_touches_nothing():
    async with running(client_csr(name="stock"), text=POLICY.replace("clients: strict\n", "")).running() as cluster:
        await asyncio.sleep(100)
        assert kinds(cluster, "stock") == []
        assert cluster.events() == []


@pytest.mark.looptime
async def test_a_second_approver_raises_one_alarm_until_it_is_gone_and_comes_back():
    async with running(allowed=("nodeclient",)).running() as cluster:
        assert [(one["reason"], one["involvedObject"]["name"]) for one in cluster.events()] == [
            (ALARM, "kubeadm:node-autoapprove-bootstrap")
        ]
        await asyncio.sleep(200)
        assert len(cluster.events()) == 1
        cluster.client.allowed = frozenset()
        await asyncio.sleep(100)
        cluster.client.allowed = frozenset({"nodeclient", "selfnodeclient"})
        await asyncio.sleep(100)
        assert {one["involvedObject"]["name"] for one in cluster.events()} == {
            "kubeadm:node-autoapprove-bootstrap",
            "kubeadm:node-autoapprove-certificate-rotation",
        }
