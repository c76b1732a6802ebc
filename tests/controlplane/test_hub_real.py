"""A hub process and a real API server: nodes of oneinfra and ours join, and requests are refused, objects repaired, and requests forgotten."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hub_hostile
import hub_killing
import pytest
import trustme
from hub_box import WITHOUT_SYSTEMD, WRITTEN, Box
from hub_identities import MARKER, Kubelet, mark_as_leaving, refusal, wait_until_seen
from hub_process import HubProcess, hub_process
from local_kit import eventually
from old_peer import OldNode
from server_kit import RunningServer

import hostile_clients
from kubewright.apis import node_join_requests
from kubewright.apis.kubeconfig import parse
from kubewright.apis.node_join_requests import LEAVE_PROOF, LEAVING_LABEL
from kubewright.base import yaml
from kubewright.base.change import Action
from kubewright.base.errors import APIError, Forbidden, Invalid, NotFound, TrustError
from kubewright.enrollment.node.joining import RequestRefused
from kubewright.kube import core
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.kubeconfigs import access_from_kubeconfig
from kubewright.kube.resources import CONFIG_MAP, NODE, NODE_JOIN_REQUEST, SECRET, named
from kubewright.lifecycle.connections import Mode
from loopback import free_address

CLUSTER_ROLE = named("ClusterRole")
HOSTILE = 500
KILLS = 4


@pytest.fixture(scope="module")
def hub(apiserver: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with hub_process(tmp_path_factory.mktemp("hub"), apiserver) as made:
        made.add("--kubernetes-version", "v1.36.3")
        yield made
        for token in made.data("token", "list"):
            made.run("token", "revoke", "a", token["id"])
        made.require_running()
        eventually(lambda: not _secrets(apiserver, "enrollment.kubewright/hub"), "the tokens to go")
    with contextlib.closing(KubeClient(apiserver.access(), timeout=600)) as admin:
        for name in ("old-1", "control"):
            with contextlib.suppress(NotFound):
                admin.delete(NODE, name)


def _secrets(server: RunningServer, label: str) -> list[Any]:
    client = KubeClient(server.access(), timeout=600)
    try:
        return client.list(SECRET, "kube-system", label_selector=label)
    finally:
        client.close()


@pytest.fixture(scope="module")
def created(hub: HubProcess) -> dict[str, Any]:
    return dict(hub.data("token", "create", "a", "--ttl", "1h"))


@pytest.fixture
def holder(hub: HubProcess, apiserver: RunningServer, created: dict[str, Any]) -> Iterator[KubeClient]:
    """A client of the cluster with a token."""
    client = KubeClient(Access(server=apiserver.url, ca_pem=apiserver.ca_pem, identity=BearerToken(created["token"])), timeout=600)
    hub.require_running()
    eventually(lambda: _join_key(client), "the hub to publish its key")
    yield client
    client.close()


def _join_key(client: KubeClient) -> str:
    try:
        found: str = client.get(CONFIG_MAP, "oneinfra-join", "oneinfra-system")["data"]["joinKey"]
    except APIError:
        return ""
    return found


def answered(client: KubeClient, name: str) -> dict[str, Any]:
    """Wait for an answer, as oneinfra's nodes do."""
    found: dict[str, Any] = {}

    def is_answered() -> bool:
        found.update(client.get(NODE_JOIN_REQUEST, name))
        condition = node_join_requests.condition_of(found)
        return condition is not None and condition.status in {"True", "False"}

    eventually(is_answered, f"the answer to {name}")
    return found


def join_as(client: KubeClient, node: OldNode) -> dict[str, Any]:
    client.create(node.request(_join_key(client)))
    return answered(client, node.name)


def test_a_second_hub_on_the_same_state_is_refused_and_the_first_continues(hub: HubProcess) -> None:
    served = hub.served
    told = hub.run("run", "--secure-port", "0", code=75)
    assert f"another hub already works with the state {hub.place}/hub/state.db" in told
    assert "held by pid" in told
    hub.require_running()
    assert hub.served == served


def test_a_node_of_oneinfra_joins_and_gets_its_own_certificate(holder: KubeClient, apiserver: RunningServer) -> None:
    node = OldNode("old-1", apiserver.url, ("10.9.0.5",))
    results = node.results(join_as(holder, node))
    assert results["kubernetesVersion"] == "1.36.3"
    kubelet = KubeClient(access_from_kubeconfig(parse(yaml.load_one(results["kubeConfig"].encode(), source="kubeConfig"))), timeout=600)
    me = kubelet.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})["status"]["userInfo"]
    assert (me["username"], "system:nodes" in me["groups"]) == ("system:node:old-1", True)
    kubelet.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old-1"}})
    with pytest.raises(Forbidden):
        kubelet.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old-2"}})
    kubelet.close()


def test_a_token_permits_requests_to_join_and_nothing_else(holder: KubeClient) -> None:
    for call in (
        lambda: holder.list(NODE_JOIN_REQUEST),
        lambda: holder.delete(NODE_JOIN_REQUEST, "old-1"),
        lambda: holder.get(NODE, "old-1"),
        lambda: holder.list(CONFIG_MAP, "oneinfra-system"),
    ):
        with pytest.raises(Forbidden):
            call()


def test_our_node_plans_joins_and_a_second_join_changes_nothing(
    tmp_path: Path, apiserver: RunningServer, holder: KubeClient, created: dict[str, Any]
) -> None:
    box = Box(tmp_path, apiserver, created, "new-1", sans=("10.9.0.6",))
    planned = box.join(Mode.PLAN).plan.as_list()
    assert [row["action"] for row in planned if row["target"] == "nodejoinrequest new-1"] == ["create"]
    assert len([row for row in planned if row["target"].startswith("file ") and row["action"] == "create"]) == 6
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFound):
        holder.get(NODE_JOIN_REQUEST, "new-1")
    done = box.join()
    assert box.files() == WRITTEN
    assert not (Path(box.layout.state) / "node-join.key").exists()
    config = yaml.load(Path(box.layout.kubelet_config).read_text())
    assert config["tlsCertFile"] == str(box.layout.oneinfra / "kubelet.crt")
    assert config["containerRuntimeEndpoint"] == "unix:///run/containerd/containerd.sock"
    written = yaml.load((Path(box.layout.oneinfra) / "kubelet.conf").read_text())
    assert (written["clusters"][0]["name"], written["users"][0]["name"]) == ("kubernetes", "system:node:new-1")
    assert written["clusters"][0]["cluster"]["server"] == apiserver.url
    assert len([change for change in done.changes if change.action is Action.CREATE]) >= 5
    assert box.join().changes == ()


def test_an_interrupted_join_continues_with_its_own_request(
    tmp_path: Path, apiserver: RunningServer, holder: KubeClient, created: dict[str, Any]
) -> None:
    first = Box(tmp_path, apiserver, created, "new-2", skip=("preflight", "answer", "tunnel", "files", "forget-key", *WITHOUT_SYSTEMD))
    first.join()
    assert (Path(first.layout.state) / "node-join.key").exists()
    again = Box(tmp_path, apiserver, created, "new-2")
    again.join()
    assert again.files() == WRITTEN
    other = Box(tmp_path / "other", apiserver, created, "new-2")
    with pytest.raises(APIError, match="another machine has requested to join as new-2"):
        other.join()


def test_a_key_other_than_the_pinned_one_is_not_used(
    tmp_path: Path, apiserver: RunningServer, holder: KubeClient, created: dict[str, Any]
) -> None:
    box = Box(tmp_path, apiserver, created, "new-3", fingerprint=f"sha256:{'0' * 64}")
    with pytest.raises(Exception, match="is not the one you pinned"):
        box.join()
    with pytest.raises(NotFound):
        holder.get(NODE_JOIN_REQUEST, "new-3")


def test_an_api_server_of_another_ca_is_not_used(
    tmp_path: Path, apiserver: RunningServer, holder: KubeClient, created: dict[str, Any]
) -> None:
    box = Box(tmp_path, apiserver, created, "new-5", ca_pem=trustme.CA().cert_pem.bytes().decode())
    with pytest.raises(APIError, match="certificate"):
        box.join()
    assert box.files() == []
    with pytest.raises(NotFound):
        holder.get(NODE_JOIN_REQUEST, "new-5")


def test_refusals_are_stored_in_the_object_and_reported_by_our_node(
    tmp_path: Path, apiserver: RunningServer, holder: KubeClient, created: dict[str, Any]
) -> None:
    found = join_as(holder, OldNode("thief-1", apiserver.url, ("kubernetes.default.svc",)))
    [condition] = found["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SanNotAllowed")
    assert "kubernetes.default.svc" in condition["message"]
    foreign = join_as(holder, OldNode("thief-2", apiserver.url, ("10.9.0.5",)))
    assert "belongs to the node old-1" in foreign["status"]["conditions"][0]["message"]
    box = Box(tmp_path, apiserver, created, "new-4", sans=("169.254.0.1",))
    with pytest.raises(RequestRefused, match="does not admit new-4: SanNotAllowed") as refused:
        box.join()
    assert "link-local" in refused.value.detail


def test_a_name_is_free_again_when_the_hub_has_forgotten_its_node(hub: HubProcess, apiserver: RunningServer, holder: KubeClient) -> None:
    first = OldNode("twice", apiserver.url)
    assert first.issued(join_as(holder, first))
    admin = KubeClient(apiserver.access(), timeout=600)
    admin.delete(NODE_JOIN_REQUEST, "twice")
    found = join_as(holder, OldNode("twice", apiserver.url))
    assert found["status"]["conditions"][0]["reason"] == "NameTaken"
    hub.run("requests", "forget", "a", "twice")
    other = OldNode("twice", apiserver.url)
    assert other.issued(join_as(holder, other))
    admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "control"}})
    wait_until_seen(admin, "control")
    live = join_as(holder, OldNode("control", apiserver.url))
    assert "did not join through this hub" in live["status"]["conditions"][0]["message"]
    replay = {**found, "metadata": {"name": "twice-2"}, "spec": admin.get(NODE_JOIN_REQUEST, "twice")["spec"]}
    replay.pop("status")
    holder.create(replay)
    assert answered(holder, "twice-2")["status"]["conditions"][0]["reason"] == "Replayed"
    admin.close()


def test_malformed_requests_do_not_affect_others(hub: HubProcess, apiserver: RunningServer, holder: KubeClient) -> None:
    good = OldNode("template", apiserver.url).request(_join_key(holder))["spec"]
    broken: dict[str, dict[str, Any]] = {f"short-{size}": {**good, "apiServerEndpoint": "A" * size} for size in (1, 11, 12, 27, 37)}
    broken |= {"none": {}, "padded": {**good, "symmetricKey": good["symmetricKey"] + "=="}, "empty-san": {**good, "extraSANs": [""]}}
    head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
    for name, spec in broken.items():
        holder.create({**head, "metadata": {"name": name}, "spec": spec})
    with pytest.raises(Invalid):
        holder.create({**head, "metadata": {"name": "large"}, "spec": {**good, "symmetricKey": "A" * 5000}})
    holder.create(
        {**head, "metadata": {"name": "held", "finalizers": ["a.example.com/keep"]}, "spec": {}}
    )  # removed with the others, at the end
    labels = {f"k{number}.{'x' * 200}.example.com/y": "z" * 60 for number in range(3000)}
    holder.create({**head, "metadata": {"name": "laden", "labels": labels}, "spec": {}})
    node = OldNode("beside", apiserver.url)
    assert node.issued(join_as(holder, node))
    eventually(lambda: "laden" not in {row["node"] for row in hub.data("requests")}, "the large one to go")
    reasons = {name: answered(holder, name)["status"]["conditions"][0]["reason"] for name in broken}
    assert reasons == dict.fromkeys(broken, "Malformed")


def test_hundreds_of_hostile_requests_do_not_delay_good_ones(hub: HubProcess, apiserver: RunningServer, created: dict[str, Any]) -> None:
    hub.add("--kubernetes-version", "v1.36.3", "--key-algorithm", "ECDSA-P256")
    found = hub_hostile.beset(hub, apiserver, created["token"], count=HOSTILE)
    sys.stdout.write(found.told + "\n")
    assert found.ends == hub_hostile.expected(HOSTILE)
    assert found.beside < 300, found.told
    assert found.memory < 64, found.told
    refused = [row for row in hub.data("journal") if row["node"].startswith("hostile-")]
    assert len(refused) == HOSTILE - found.ends[hub_hostile.REJECTED]
    hub.add("--kubernetes-version", "v1.36.3")


def test_a_person_approves_requests_if_the_cluster_requires_it(hub: HubProcess, apiserver: RunningServer, holder: KubeClient) -> None:
    hub.add("--kubernetes-version", "v1.36.3", "--approval", "human")
    for name in ("asks-1", "asks-2"):
        holder.create(OldNode(name, apiserver.url).request(_join_key(holder)))

    def states() -> dict[str, str]:
        return {row["node"]: row["state"] for row in hub.data("requests")}

    eventually(lambda: [states().get(name) for name in ("asks-1", "asks-2")] == ["AwaitingApproval"] * 2, "both to wait")
    assert hub.run("requests", "approve", "a", "asks-1") == "a asks-1: approved\n"
    refused = hub.data("requests", "refuse", "a", "asks-2")
    assert (refused["cluster"], refused["event"], refused["node"]) == ("a", "refused by an administrator", "asks-2")
    assert answered(holder, "asks-1")["status"]["conditions"][0]["status"] == "True"
    assert answered(holder, "asks-2")["status"]["conditions"][0]["reason"] == "ApprovalDenied"
    assert "has been answered" in hub.run("requests", "approve", "a", "asks-2", code=2)
    hub.add("--kubernetes-version", "v1.36.3")


def test_changed_objects_are_repaired_and_foreign_tokens_stay(hub: HubProcess, apiserver: RunningServer, holder: KubeClient) -> None:
    admin = KubeClient(apiserver.access(), timeout=600)
    key = _join_key(holder)
    admin.patch(CONFIG_MAP, "oneinfra-join", {"data": {"joinKey": "mine"}}, "oneinfra-system", type="merge")
    admin.delete(CLUSTER_ROLE, "oneinfra:node:join-requester")
    foreign = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bootstrap-token-odd", "namespace": "kube-system"}}
    admin.create({**foreign, "type": "bootstrap.kubernetes.io/token"})
    eventually(lambda: _join_key(holder) == key, "the key to be repaired")
    roles = ("oneinfra:node:join-requester",)
    eventually(
        lambda: [one for one in admin.list(CLUSTER_ROLE) if one["metadata"]["name"] in roles and one["rules"]], "the role to be back"
    )
    second = hub.data("token", "create", "a")
    name = f"bootstrap-token-{second['id']}"
    eventually(lambda: [one for one in _secrets(apiserver, "enrollment.kubewright/hub") if one["metadata"]["name"] == name], "the token")
    admin.delete(SECRET, name, "kube-system")
    eventually(
        lambda: [one for one in _secrets(apiserver, "enrollment.kubewright/hub") if one["metadata"]["name"] == name], "the token again"
    )
    hub.run("token", "revoke", "a", second["id"])
    eventually(lambda: name not in {one["metadata"]["name"] for one in _secrets(apiserver, "")}, "the token to go")
    assert "bootstrap-token-odd" in {one["metadata"]["name"] for one in _secrets(apiserver, "")}
    admin.delete(SECRET, "bootstrap-token-odd", "kube-system")
    admin.close()


def test_a_hub_sets_only_permitted_fields_and_those_that_the_machine_accepts(
    tmp_path: Path, hub: HubProcess, apiserver: RunningServer, holder: KubeClient, created: dict[str, Any]
) -> None:
    fields = tmp_path / "kubelet.yaml"
    fields.write_text("{staticPodURL: 'http://192.0.2.1/pods', maxPods: 7}")
    hub.add("--kubernetes-version", "v1.36.3", "--kubelet-config", str(fields))
    box = Box(tmp_path / "box", apiserver, created, "set-1")
    with pytest.raises(TrustError, match="the kubelet's configuration that the hub sent cannot be used") as refused:
        box.join()
    assert "--accept-kubelet-fields=staticPodURL" in refused.value.remedy
    assert box.files() == []
    box.wanted["accepted"] = ("staticPodURL",)
    box.join()
    config = yaml.load(Path(box.layout.kubelet_config).read_text())
    assert (config["staticPodURL"], config["maxPods"], config["authorization"]) == ("http://192.0.2.1/pods", 7, {"mode": "Webhook"})
    hub.add("--kubernetes-version", "v1.27.0")
    with pytest.raises(TrustError, match="the version that the hub sent cannot be used") as old:
        Box(tmp_path / "old", apiserver, created, "set-2").join()
    assert "a kubelet v1.27.0 is not compatible with the API server v1.36.3" in old.value.detail
    hub.add("--kubernetes-version", "v1.36.3")


def test_a_killed_hub_continues_after_a_restart(
    tmp_path: Path, hub: HubProcess, apiserver: RunningServer, holder: KubeClient, created: dict[str, Any]
) -> None:
    leaves = Box(tmp_path, apiserver, created, "leaves")
    leaves.join()
    hub.kill()
    node = OldNode("patient", apiserver.url)
    holder.create(node.request(_join_key(holder)))
    with contextlib.closing(KubeClient(apiserver.access(), timeout=600)) as admin, ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(leaves.depart)  # its kubelet has never registered
        eventually(lambda: "leaves" in {core.identity_of(one)[0] for one in admin.list(NODE)}, "the node to say that it leaves")
        assert leaves.files() == WRITTEN
        assert not leaving.done()
        hub.resume()
        leaving.result(600)
        assert "leaves" not in {core.identity_of(one)[0] for one in admin.list(NODE)}
    assert leaves.files() == [name for name in WRITTEN if name != "kubelet.conf"]
    assert [row["event"] for row in hub.data("journal") if row["node"] == "leaves"] == ["issued", "left"]
    assert node.issued(answered(holder, "patient"))
    issued = [row["node"] for row in hub.data("journal") if row["event"] == "issued"]
    assert issued.count("patient") == 1
    hub.run("backup", str(hub.place / "copy.db"))
    hub.run("requests", "forget", "a", "patient")
    hub.run("restore", str(hub.place / "copy.db"))
    assert [row["event"] for row in hub.data("journal")][-1] == "restored"
    assert "forgotten" not in {row["event"] for row in hub.data("journal") if row["node"] == "patient"}
    assert hub.stop() == 0
    hub.resume()


def test_clients_that_occupy_all_connections_delay_neither_health_nor_joins(
    hub: HubProcess, apiserver: RunningServer, holder: KubeClient
) -> None:
    port = 10443
    address = free_address((port,))
    assert hub.stop() == 0
    with hostile_clients.few_files():
        hub.resume(f"--bind-address={address}", f"--secure-port={port}")
    with hostile_clients.hostile(address, port, secure=True):
        for number in range(3):
            assert hostile_clients.health(address, port, secure=True, path="/readyz") == (200, b"ok")
            node = OldNode(f"unhindered-{number}", apiserver.url)
            assert node.issued(join_as(holder, node))
    assert hub.stop() == 0
    hub.resume()


def test_joins_succeed_if_hubs_and_nodes_are_killed_at_random_moments(
    tmp_path: Path, hub: HubProcess, apiserver: RunningServer, created: dict[str, Any], holder: KubeClient
) -> None:
    hub.add("--kubernetes-version", "v1.36.3", "--key-algorithm", "ECDSA-P256")
    found = hub_killing.killed(hub, apiserver, tmp_path, created, rounds=KILLS, seed=20261127)
    assert found.kills.total() == KILLS
    hub.add("--kubernetes-version", "v1.36.3")


def test_no_node_gets_the_identity_of_another_node(hub: HubProcess, apiserver: RunningServer, holder: KubeClient) -> None:
    hub.add("--kubernetes-version", "v1.36.3", "--key-algorithm", "ECDSA-P256", "--allow-names", "*.corp")
    own = {"twin-1": ("10.9.1.1", "one.corp"), "twin-2": ("10.9.1.2", "two.corp")}
    with contextlib.closing(KubeClient(apiserver.access(), timeout=600)) as admin:
        nodes = {name: Kubelet(name, apiserver, holder=holder, admin=admin, key=_join_key(holder)) for name in own}
        admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": MARKER}})
        for name, node in nodes.items():
            assert node.ask(own[name][0]) == "Issued: "
            node.register()
        for thief, victim in (("twin-1", "twin-2"), ("twin-2", "twin-1"), ("twin-1", "twin-2")):
            with contextlib.closing(nodes[thief].client) as client:
                for write in ({"metadata": {"labels": {LEAVING_LABEL: "true"}}}, {"metadata": {"annotations": {LEAVE_PROOF: "x"}}}):
                    with pytest.raises(Forbidden):
                        client.patch(NODE, victim, write, type="merge")
            both = {thief: (*own[thief], *own[victim]), victim: own[victim]}
            for name in (thief, victim, thief, victim):  # whichever node was last
                nodes[name].report(*both[name][::2], dns=both[name][1::2])
            wait_until_seen(admin)
            for wanted in (*own[victim], victim):
                assert nodes[thief].ask(wanted) == f'SanNotAllowed: ForeignName: "{wanted}" belongs to the node {victim}'
            assert nodes[victim].ask(own[victim][0]) == "Issued: "
            stranger = Kubelet(own[victim][1], apiserver, holder=holder, admin=admin, key=_join_key(holder))
            assert stranger.ask().startswith(f'NameTaken: the node name "{stranger.name}" belongs to the node twin-')
            hub.kill()
            hub.resume()
        assert {row.node: row.names for row in hub.records() if row.node in own} == {name: (words[0],) for name, words in own.items()}


def test_write_access_to_nodes_does_not_free_names_of_others(hub: HubProcess, apiserver: RunningServer, holder: KubeClient) -> None:
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
    subjects = [{**group, "kind": "User", "name": "patcher"}]
    with contextlib.closing(KubeClient(apiserver.access(), timeout=600)) as admin:
        admin.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "patcher"}, "rules": rules})
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "patcher"}}
        admin.create({**binding, "subjects": subjects, "roleRef": {**group, "kind": "ClusterRole", "name": "patcher"}})
        victim, thief = (Kubelet(name, apiserver, holder=holder, admin=admin, key=_join_key(holder)) for name in ("vic", "thief-3"))
        for node in (victim, thief):
            assert node.ask() == "Issued: "
            node.register()
        uid = admin.get(NODE, "vic")["metadata"]["uid"]
        with contextlib.closing(KubeClient(apiserver.access("patcher", "people"), timeout=600)) as patcher:
            for proof in ("", thief.proof("vic", uid), victim.proof("vic", "uid-of-before")):
                mark_as_leaving(patcher, "vic", proof)
                eventually(lambda: "there is no proof" in refusal(patcher, "vic"), "the hub to say why it frees nothing")
                another = Kubelet("vic", apiserver, holder=holder, admin=admin, key=_join_key(holder))
                assert another.ask().startswith('NameTaken: another machine has joined as "vic"')
            assert admin.get(NODE, "vic")["metadata"]["uid"] == uid
            mark_as_leaving(patcher, "vic", victim.proof("vic", uid))
            eventually(lambda: "vic" not in {core.identity_of(one)[0] for one in admin.list(NODE)}, "the Node to go")
            wait_until_seen(admin, "thief-3")
        assert another.ask() == "Issued: "
        assert [row["event"] for row in hub.data("journal") if row["node"] == "vic" and row["event"] != "refused"] == [
            *("issued", "left", "issued"),
        ]
        for name in ("twin-1", "twin-2", "thief-3", MARKER):
            admin.delete(NODE, name)
    hub.add("--kubernetes-version", "v1.36.3")


def test_requests_are_deleted_after_use(hub: HubProcess, apiserver: RunningServer, holder: KubeClient) -> None:
    hub.add("--kubernetes-version", "v1.36.3", "--keep-requests", "1s")
    admin = KubeClient(apiserver.access(), timeout=600)
    eventually(lambda: admin.list(NODE_JOIN_REQUEST) == [], "the requests to go")
    admin.close()
    joined = hub.data("cluster", "list")[0]["joined"]
    assert joined >= 6
    assert "failed unexpectedly" not in hub.log
    assert "Traceback" not in hub.log
