"""The sources of names: what each gives to a node, and that a source which fails gives nothing and denies nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path, PurePosixPath

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from serving_kit import USER

sys.path.insert(0, str(Path(__file__).parents[1] / "http"))
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from dns_server import DNSServer
from fake_api import FakeAPI, FakeClient
from http_fixtures import authority, ca_pem, make_server, server_pair, server_tls
from scripted_server import Raw, answer, json_answer

from kubewright.apis import node_approval
from kubewright.apis.join_records import IssuedCertificate, JoinRecord, State
from kubewright.base.errors import CertificateError, KubewrightError, ServerError
from kubewright.base.records import replace
from kubewright.controllers.serving.evidence import Answer, Fetched, Membership
from kubewright.controllers.serving.sources import webhook
from kubewright.controllers.serving.sources.fetching import Fetcher
from kubewright.controllers.serving.sources.interface import Look, NoEvidence, Question, Tools
from kubewright.controllers.serving.sources.machines import MachineIndex
from kubewright.http import tls
from kubewright.kube.credentials import Access

__all__ = ["authority", "ca_pem", "make_server", "server_pair", "server_tls"]

HEAD = "apiVersion: controllers.kubewright/v1alpha1\nkind: NodeApprovalPolicy\n"
ASKED = Question(request="csr-1", node="a", username=USER, names=("a", "a.example.com"), addresses=("10.1.0.7", "2001:db8::7"))
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: m, cluster: {server: "https://management:6443"}}]
users: [{name: m, user: {token: t}}]
contexts: [{name: m, context: {cluster: m, user: m}}]
current-context: m
"""


def policy(*sources: str, more: str = "") -> node_approval.NodeApprovalPolicy:
    return node_approval.read(f"{HEAD}sources:\n{''.join(f'- {one}' + chr(10) for one in sources)}{more}".encode(), source="policy.yaml")


async def fetched(found: node_approval.NodeApprovalPolicy, tools: Tools | None = None, question: Question = ASKED) -> Fetched:
    fetcher = Fetcher(found, tools or Tools(read=lambda _: None))
    try:
        return await fetcher.fetch(question)
    finally:
        await fetcher.close()


# Machines


def machine(name: str, *addresses: tuple[str, str], node: str = "", **metadata: object) -> dict:
    rows = [{"type": kind, "address": value} for kind, value in addresses]
    status = {"addresses": rows} | ({"nodeRef": {"kind": "Node", "name": node}} if node else {})
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": "team-a", **metadata},
        "status": status,
    }


MINE = machine("m-1", ("InternalIP", "10.1.0.7"), ("InternalDNS", "A.example.com."), ("Hostname", "a"), node="a")
THEIRS = machine("m-2", ("ExternalIP", "2001:db8:0::7"), ("Hostname", "b"))


def test_a_machine_gives_its_addresses_to_the_node_it_refers_to_and_takes_them_from_all_others():
    found = MachineIndex([MINE, THEIRS]).answer("machines", ASKED)
    assert found.gives == {"a", "a.example.com", "10.1.0.7"}
    assert found.foreign == {"2001:db8::7": "b"}


def test_a_machine_without_a_reference_belongs_to_the_node_with_one_of_its_names():
    found = MachineIndex([machine("m-1", ("InternalIP", "10.1.0.7"), ("Hostname", "a"))]).answer("machines", ASKED)
    assert found.gives == {"a", "10.1.0.7"}
    other = MachineIndex([machine("m-1", ("InternalIP", "10.1.0.7"), ("Hostname", "a"), node="b")]).answer("machines", ASKED)
    assert (other.gives, other.foreign) == (frozenset(), {"a": "b", "10.1.0.7": "b"})


def test_two_machines_of_one_node_give_it_nothing():
    with pytest.raises(NoEvidence, match="2 Machines"):
        MachineIndex([MINE, machine("m-3", ("InternalIP", "10.1.0.9"), node="a")]).answer("machines", ASKED)


def test_an_address_of_two_machines_belongs_to_the_other_one_as_well():
    found = MachineIndex([MINE, machine("m-3", ("InternalIP", "10.1.0.7"), node="b")]).answer("machines", ASKED)
    assert found.foreign == {"10.1.0.7": "b"}


def test_a_machine_that_is_being_deleted_assigns_no_addresses():
    gone = machine("m-1", ("InternalIP", "10.1.0.7"), node="a", deletionTimestamp="2026-01-01T00:00:00Z")
    assert MachineIndex([gone]).answer("machines", ASKED).gives == frozenset()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


@given(JSON, JSON, JSON)
def test_a_machine_of_any_content_is_read(status, addresses, reference):
    for broken in (status, {"addresses": addresses, "nodeRef": reference}, {"addresses": [{"type": "InternalIP", "address": addresses}]}):
        found = MachineIndex([{"metadata": {"name": "m"}, "status": broken}]).answer("machines", ASKED)
        assert found.gives == frozenset()


MACHINES = "machines: {kubeconfig: /management.conf, namespace: team-a, cluster: team-a}"


@pytest.mark.asyncio
async def test_machines_are_listed_once_for_many_questions_and_not_at_all_if_the_cluster_fails():
    api, asked = FakeAPI(), []

    def connect(access: Access) -> FakeClient:
        asked.append(access.server)
        return FakeClient(api, access)

    tools = Tools(read={PurePosixPath("/management.conf"): KUBECONFIG.encode()}.get, connect=connect)
    api.put(MINE)
    fetcher = Fetcher(policy(MACHINES), tools)
    found = await asyncio.gather(*(fetcher.fetch(ASKED) for _ in range(9)))
    assert [one.answers[0].gives for one in found] == [{"a", "a.example.com", "10.1.0.7"}] * 9
    assert asked == ["https://management:6443"]
    [listed] = api.made("list", "machines")
    assert listed is not None
    await fetcher.close()
    api.fail("list", "machines", error=ServerError("broken", code=500))
    found = await fetched(policy(MACHINES), tools)
    assert found.answers == (Answer(source="machines", problem="broken"),)


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_machines_are_listed_with_the_present_credentials_of_the_kubeconfig():
    api, used = FakeAPI(), []

    def connect(access: Access) -> FakeClient:
        used.append(access.identity)
        return FakeClient(api, access)

    path = PurePosixPath("/management.conf")
    files = {path: KUBECONFIG.encode()}
    fetcher = Fetcher(policy(MACHINES), Tools(read=files.get, connect=connect))
    await fetcher.fetch(ASKED)
    files[path] = KUBECONFIG.replace("token: ", "token: new-").encode()
    await fetcher.fetch(ASKED)
    assert len(used) == 1
    await asyncio.sleep(11)
    await fetcher.fetch(ASKED)
    assert [identity.token.startswith("new-") for identity in used] == [False, True]
    await fetcher.close()


def test_a_source_whose_files_are_missing_or_broken_cannot_be_opened():
    with pytest.raises(KubewrightError, match=r"/management\.conf"):
        Fetcher(policy(MACHINES), Tools(read=lambda _: None))
    broken = "webhook: {url: https://x/, certificateAuthority: '-----BEGIN CERTIFICATE-----'}"
    with pytest.raises(CertificateError):
        Fetcher(policy(broken), Tools(read=lambda _: None))


# join records


RECORD = JoinRecord(
    cluster="c",
    node="a",
    state=State.ISSUED,
    protocol="p",
    request="r",
    key="k",
    names=("a.example.com",),
    lease="10.1.0.7,2001:db8:0::7",
    certificates=(IssuedCertificate(purpose="client", serial="1", fingerprint="f1", not_after="2027-01-01T00:00:00Z"),),
)


class Book:
    """The records of a hub, in memory."""

    def __init__(self, *records: JoinRecord, error: Exception | None = None) -> None:
        self.records = {one.node: one for one in records}
        self.error = error
        self.closed = False

    async def version(self):
        return 0

    async def look_up(self, node, names):
        if self.error is not None:
            raise self.error
        owners = {name: one.node for one in self.records.values() for name in one.held if name in names}
        return Look(version=0, record=self.records.get(node), owners=owners)

    async def close(self):
        self.closed = True


def records(*options: str) -> str:
    return f"joinRecords: {{state: /hub.db, keyFile: /hub.key, cluster: c{''.join(f', {one}' for one in options)}}}"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("book", "options", "question", "gives", "membership"),
    [
        (Book(RECORD), [], ASKED, set(ASKED.sans), Membership.MEMBER),
        (Book(), [], ASKED, set(), Membership.MEMBER),
        (Book(), ["required: true"], ASKED, set(), Membership.NO_RECORD),
        (Book(replace(RECORD, state=State.LEFT)), [], ASKED, set(), Membership.LEFT),
        (Book(RECORD), ["credentials: true"], replace(ASKED, credential="f1"), set(ASKED.sans), Membership.MEMBER),
        (Book(RECORD), ["credentials: true"], replace(ASKED, credential="f2"), set(ASKED.sans), Membership.OTHER_CREDENTIAL),
        (Book(RECORD), ["credentials: true"], ASKED, set(ASKED.sans), Membership.OTHER_CREDENTIAL),
        (
            Book(RECORD),
            ["credentials: true"],
            replace(ASKED, credential="f2", issued=frozenset({"f2"})),
            set(ASKED.sans),
            Membership.MEMBER,
        ),
    ],
)
async def test_a_join_record_gives_the_names_with_which_the_node_has_joined(book, options, question, gives, membership):
    [found] = (await fetched(policy(records(*options)), Tools(read=lambda _: None, records=lambda _: book), question)).answers
    assert (found.problem, found.gives, found.membership) == ("", gives, membership)
    assert book.closed


@pytest.mark.asyncio
async def test_names_in_the_join_record_of_another_node_are_foreign():
    other = Book(replace(RECORD, node="b"))
    [found] = (await fetched(policy(records()), Tools(read=lambda _: None, records=lambda _: other))).answers
    assert (found.gives, set(found.foreign.values())) == (set(), {"b"})
    assert {"a.example.com", "10.1.0.7"} <= set(found.foreign)


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [KubewrightError("the file is locked"), ValueError("a bug")])
async def test_records_that_cannot_be_read_are_no_answer(error):
    book = Book(error=error)
    [found] = (await fetched(policy(records()), Tools(read=lambda _: None, records=lambda _: book))).answers
    assert (found.source, found.membership, found.gives) == ("joinRecords", None, frozenset())
    assert found.problem in {"the file is locked", "it failed unexpectedly"}


# DNS


ZONE = {
    ("a.example.com", "A"): ["10.1.0.7"],
    ("a.example.com", "AAAA"): ["2001:db8::7"],
    ("b.example.com", "A"): ["10.1.0.7"],
    ("7.0.1.10.in-addr.arpa", "PTR"): ["a.example.com."],
}


def dns(server: DNSServer, *options: str) -> str:
    chosen = "".join(f", {one}" for one in options)
    return f'dns: {{names: ["{{node}}.example.com"], resolvers: ["127.0.0.1:{server.port}"], timeout: 20s{chosen}}}'


@pytest.mark.asyncio
async def test_dns_assigns_addresses_with_matching_reverse_records():
    async with DNSServer(ZONE).running() as server:
        [found] = (await fetched(policy(dns(server)))).answers
        assert (found.problem, found.gives) == ("", {"a.example.com", "10.1.0.7"})
        [found] = (await fetched(policy(dns(server, "forwardOnly: true")))).answers
        assert found.gives == {"a.example.com", "10.1.0.7", "2001:db8::7"}
        [found] = (await fetched(policy(dns(server)), question=replace(ASKED, node="b", names=("b.example.com",)))).answers
        assert found.gives == {"b.example.com"}  # 10.1.0.7 leads back to a
        [found] = (await fetched(policy(dns(server)), question=replace(ASKED, node="c"))).answers
        assert (found.problem, found.gives) == ("", set())


@pytest.mark.asyncio
async def test_a_dns_server_that_fails_is_no_answer():
    for broken in ("a.example.com", "7.0.1.10.in-addr.arpa"):
        async with DNSServer(ZONE, broken={broken: "SERVFAIL"}).running() as server:
            [found] = (await fetched(policy(dns(server)))).answers
            assert found.gives == frozenset()
            assert "no DNS server answers" in found.problem


@pytest.mark.asyncio
async def test_each_name_of_a_request_is_looked_up_by_itself():
    async with DNSServer(ZONE, broken={"a": "SERVFAIL"}).running() as server:
        check = f'dnsCheck: {{resolvers: ["127.0.0.1:{server.port}"], timeout: 20s}}\n'
        found = await fetched(policy("file: {nodes: [{node: a}]}", more=check), question=replace(ASKED, names=("a.example.com", "a", "x")))
        assert found.resolved == {"a.example.com": {"10.1.0.7", "2001:db8::7"}, "a": None, "x": frozenset()}


# webhook


def hook(url: str, ca: bytes, timeout: str = "30s") -> str:
    return f"webhook: {json.dumps({'url': f'{url}/nodes?x=1', 'certificateAuthority': ca.decode(), 'timeout': timeout})}"


def review(**fields: object) -> dict:
    response = {"id": "csr-1", "node": "a", "names": ["a.example.com", "other"], "addresses": ["10.1.0.7", "2001:DB8::7"], **fields}
    return {"apiVersion": node_approval.API_VERSION, "kind": webhook.KIND, "response": response}


@pytest.mark.asyncio
async def test_a_webhook_is_asked_about_the_node_and_assigns_the_listed_names(make_server, ca_pem):
    server = make_server(lambda _: json_answer(review()))
    [found] = (await fetched(policy(hook(server.url, ca_pem)))).answers
    assert found == Answer(source=f"webhook 127.0.0.1:{server.port}", gives=frozenset({"a.example.com", "10.1.0.7", "2001:db8::7"}))
    [seen] = server.seen
    assert (seen.method, seen.target) == ("POST", "/nodes?x=1")
    assert json.loads(seen.body)["request"] == {
        "id": "csr-1",
        "node": "a",
        "names": ["a", "a.example.com"],
        "addresses": ["10.1.0.7", "2001:db8::7"],
    }


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answered", "problem"),
    [
        (json_answer({}, 500), "status 500"),
        (json_answer(review(), 204), "status 204"),
        (answer(302, b"", headers={"location": "https://elsewhere/"}), ""),
        (answer(200, b"{"), "not JSON"),
        (answer(200, b"[" * 60_000), "not JSON"),
        (json_answer([]), "not a NodeNamesReview"),
        (json_answer(review(node="b")), "another request"),
        (json_answer(review(id="csr-2")), "another request"),
        (json_answer(review(names="a")), "lists of at most 64"),
        (json_answer(review(names=[1])), "lists of at most 64"),
        (json_answer(review(addresses=["10.1.0.7"] * 65)), "lists of at most 64"),
        (json_answer(review(names=["*.example.com"])), "1 values"),
        (json_answer(review(addresses=["10.0.0.0/8"])), "1 values"),
        (answer(200, b" " * (webhook.LARGEST + 1)), "larger than allowed"),
        (Raw((b"not HTTP\r\n\r\n",), close=True), "not what was requested"),
    ],
)
async def test_a_webhook_that_answers_wrongly_is_no_answer(make_server, ca_pem, answered, problem):
    server = make_server(lambda _: answered)
    [found] = (await fetched(policy(hook(server.url, ca_pem)))).answers
    assert (found.source, found.gives) == ("webhook", frozenset())
    assert found.problem
    assert problem in found.problem


@pytest.mark.asyncio
async def test_a_webhook_that_is_slow_unreachable_or_has_another_ca_is_no_answer(make_server, ca_pem):
    slow = make_server(lambda _: json_answer(review(), delay=30.0))
    good = make_server(lambda _: json_answer(review()))
    cases = {
        "within 300ms": hook(slow.url, ca_pem, "300ms"),
        "not trusted": hook(good.url, trustme.CA().cert_pem.bytes()),
        "connection refused": hook("https://127.0.0.1:1", ca_pem),
    }
    for problem, source in cases.items():
        [found] = (await fetched(policy(source))).answers
        assert found.gives == frozenset()
        assert problem in found.problem or "timed out" in found.problem


RESPONSES = st.recursive(JSON, lambda inner: st.dictionaries(st.sampled_from(["response", "id", "node", "kind"]), inner))


@given(st.binary(max_size=60) | RESPONSES.map(lambda value: json.dumps(value).encode()))
def test_any_response_is_refused_or_read(body):
    with pytest.raises(NoEvidence):
        webhook.given_by(body, ASKED)


# the call-back


def call_back(port: int, ca: bytes) -> str:
    return f"callBack: {json.dumps({'port': port, 'certificateAuthority': ca.decode(), 'timeout': '20s'})}\n"


@pytest.mark.asyncio
async def test_the_kubelet_at_an_address_is_known_by_its_certificate(make_server, authority, ca_pem, server_pair):
    def kubelet(name: str, *sans: str, organization: str = "system:nodes", ca: trustme.CA = authority) -> int:
        leaf = ca.issue_cert(*sans, common_name=name, organization_name=organization)
        return make_server(context=tls.server_context(leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes())).port

    at = replace(ASKED, names=("a",), addresses=("127.0.0.1",))
    own, file = {"127.0.0.1": USER}, "file: {nodes: [{node: a}]}"
    cases = {
        kubelet(USER, "a", "10.1.0.7"): (own, {"a", "10.1.0.7"}),
        kubelet("system:node:b", "a"): ({"127.0.0.1": "system:node:b"}, set()),
        kubelet("kube-apiserver", "a"): ({}, set()),
        kubelet("system:node:b", "a", organization="x"): ({}, set()),
        kubelet("system:node:b", "a", ca=trustme.CA()): ({}, set()),
        make_server(context=None).port: ({}, set()),
        1: ({}, set()),
    }
    for port, (present, names) in cases.items():
        found = await fetched(policy(file, more=call_back(port, ca_pem)), question=at)
        assert (found.present, found.present_names) == (present, names)


# everything together


@pytest.mark.asyncio
async def test_sources_are_asked_together_and_one_that_fails_takes_nothing_from_the_others(make_server, ca_pem):
    async with DNSServer(ZONE).running() as server:
        wrong = make_server(lambda _: json_answer({}, 500))
        found = policy(dns(server), hook(wrong.url, ca_pem), records())
        answers = (await fetched(found, Tools(read=lambda _: None, records=lambda _: Book(RECORD)))).answers
    assert [one.source for one in answers] == ["dns", "webhook", "joinRecords"]
    assert [bool(one.problem) for one in answers] == [False, True, False]
