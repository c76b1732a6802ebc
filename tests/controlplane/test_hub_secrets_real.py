"""A hub whose state is in Secrets of a real cluster, with no more permissions than it needs: the tests of every store, and a working hub."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hub_process import HubProcess, hub_process, kubeconfig
from local_kit import eventually
from old_peer import OldNode
from server_kit import RunningServer

from kubewright.apis import node_join_requests
from kubewright.base import yaml
from kubewright.base.errors import APIError, Forbidden
from kubewright.base.randomness import SystemRandom
from kubewright.enrollment.state.seal import OldState
from kubewright.enrollment.state.secret_store import SecretStore
from kubewright.enrollment.state.store import TAKEN_OVER, Event, HubStore, Retention
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.resources import CONFIG_MAP, NODE_JOIN_REQUEST, SECRET
from kubewright.pki import certificates, keys
from kubewright.pki.encryption import oaep

from hub_kit import JOIN_KEY, STATE_KEY, event  # isort: skip
from oneinfra_kit import manifest  # isort: skip
from test_hub_stores import (  # isort: skip
    test_a_record_its_names_and_the_journal_are_written_together,
    test_a_removed_cluster_leaves_nothing_but_the_journal,
    test_another_key_opens_nothing,
    test_another_process_is_detected,
    test_clusters_and_tokens_are_read_back_unchanged,
    test_lines_beyond_the_limit_are_removed,
    test_a_failed_write_leaves_nothing,
    test_the_first_of_two_concurrent_decisions_wins,
    test_processes_see_and_keep_the_writes_of_each_other,
)

from test_hub_writers import (  # isort: skip
    paused_before,
    test_undisturbed_decisions_are_written,
    test_outdated_decisions_are_not_written,
)

from test_state_seal import OLD, require_taken_over  # isort: skip

__all__ = [
    "test_a_failed_write_leaves_nothing",
    "test_a_record_its_names_and_the_journal_are_written_together",
    "test_a_removed_cluster_leaves_nothing_but_the_journal",
    "test_another_key_opens_nothing",
    "test_another_process_is_detected",
    "test_clusters_and_tokens_are_read_back_unchanged",
    "test_lines_beyond_the_limit_are_removed",
    "test_outdated_decisions_are_not_written",
    "test_processes_see_and_keep_the_writes_of_each_other",
    "test_the_first_of_two_concurrent_decisions_wins",
    "test_undisturbed_decisions_are_written",
]

NAMESPACE, USER = "hubs", "hub-state"
RULES = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "update", "delete"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]
"""As in docs/guide/hub.md."""


@pytest.fixture(scope="module")
def management(apiserver: RunningServer) -> RunningServer:
    """A cluster with a namespace for hubs, and a user who may use its Secrets."""
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    head = {"name": USER, "namespace": NAMESPACE}
    subjects = [{**group, "kind": "User", "name": USER}]
    with closing(KubeClient(apiserver.access(), timeout=600)) as admin:
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        admin.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": head, "rules": RULES})
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": head, "subjects": subjects}
        admin.create({**binding, "roleRef": {**group, "kind": "Role", "name": USER}})
    with closing(KubeClient(apiserver.access(USER, "hubs"), timeout=600)) as client:
        eventually(lambda: _may_list_secrets(client), "the permissions to be known: the authorizer learns of them by a watch")
    return apiserver


def _may_list_secrets(client: KubeClient) -> bool:
    with suppress(Forbidden):
        client.list(SECRET, NAMESPACE)
        return True
    return False


class RealPlace:
    """Secrets of a real cluster; each test has different ones."""

    def __init__(self, server: RunningServer) -> None:
        self.name = f"test-{os.urandom(4).hex()}"
        self._access = server.access(USER, "hubs")

    @property
    def api(self) -> KubeAPI:
        """Return a separate client."""
        return KubeClient(self._access, timeout=600)

    def open(self, *, key: bytes = STATE_KEY, retention: Retention | None = None) -> HubStore:
        return self.over(self.api, key=key, retention=retention)

    def over(self, api: KubeAPI, *, key: bytes = STATE_KEY, retention: Retention | None = None) -> HubStore:
        """Open it through something that is put in front of the cluster."""
        return SecretStore(api, namespace=NAMESPACE, name=self.name, key=key, random=SystemRandom(), retention=retention)


@pytest.fixture
def place(management: RunningServer) -> RealPlace:
    return RealPlace(management)


@pytest.fixture
def store(place: RealPlace) -> Iterator[HubStore]:
    with closing(place.open()) as made:
        yield made


@pytest.mark.parametrize("gone", [False, True], ids=["the cluster is created again", "the state is deleted and started again"])
@pytest.mark.parametrize("what", ["remove", "answer"])
def test_a_writer_paused_before_any_call_does_not_overwrite_newer_data(management: RunningServer, what: str, gone: bool) -> None:
    paused_at = 0
    while paused_before(RealPlace(management), what, paused_at, gone=gone):
        paused_at += 1
    assert paused_at >= 2


def test_the_state_of_an_earlier_version_is_migrated_once(management: RunningServer) -> None:
    with closing(KubeClient(management.access(), timeout=600)) as admin:
        for one in json.loads((OLD / "secrets1.json").read_text())["items"]:
            admin.create(one)

    def opened(taking_over: Event | None = None) -> SecretStore:
        api = KubeClient(management.access(USER, "hubs"), timeout=600)
        return SecretStore(api, namespace=NAMESPACE, name="one", key=STATE_KEY, random=SystemRandom(), taking_over=taking_over)

    with pytest.raises(OldState):
        opened()
    with closing(opened(event(TAKEN_OVER))) as store:
        require_taken_over(store)
    with closing(opened()) as again:
        require_taken_over(again)


@pytest.fixture(scope="module")
def hub(management: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    directory = tmp_path_factory.mktemp("hub")
    (directory / "hub").mkdir(mode=0o700)
    key = directory / "hub" / "state.key"
    key.touch(0o600)
    key.write_text(f"{os.urandom(32).hex()}\n")
    (directory / "state.conf").write_text(kubeconfig(management, USER, "hubs"))
    with hub_process(directory, management, state=f"secrets:{NAMESPACE}/hub") as made:
        made.add("--kubernetes-version", "v1.36.3", "--key-algorithm", "ECDSA-P256")
        yield made


def _published(client: KubeClient) -> str:
    try:
        return str(client.get(CONFIG_MAP, "oneinfra-join", "oneinfra-system")["data"]["joinKey"])
    except APIError:
        return ""


def _pin(key: str) -> str:
    """Return the fingerprint of a key: another hub may have left one."""
    return str(oaep.load_recipient(key.encode(), source="the join key").pin) if key else ""


def test_a_hub_with_its_state_in_secrets_admits_nodes_and_survives_a_kill(hub: HubProcess, management: RunningServer) -> None:
    created = hub.data("token", "create", "a", "--ttl", "1h")
    holder = KubeClient(Access(server=management.url, ca_pem=management.ca_pem, identity=BearerToken(created["token"])), timeout=600)
    with closing(holder):
        eventually(lambda: _pin(_published(holder)) == created["joinKey"], "the hub to publish its key")
        key = _published(holder)
        for name in ("secret-1", "secret-2"):
            node = OldNode(name, management.url)

            def answered(node: OldNode = node) -> bool:
                found = holder.get(NODE_JOIN_REQUEST, node.name)
                condition = node_join_requests.condition_of(found)
                return condition is not None and condition.status == "True"

            holder.create(node.request(key))
            eventually(answered, f"the answer to {name}")
            if name == "secret-1":
                hub.kill()
                hub.resume()
    rows = hub.data("journal")
    assert [row["node"] for row in rows if row["event"] == "issued"] == ["secret-1", "secret-2"]
    assert hub.data("cluster", "list")[0]["joined"] == 2
    hub.run("requests", "forget", "a", "secret-1")
    assert hub.data("cluster", "list")[0]["joined"] == 1
    assert "in Secrets, and not in a file" in hub.run("backup", str(hub.place / "copy"), code=2)
    hub.run("token", "revoke", "a", created["id"])
    hub.run("cluster", "remove", "a")
    assert "Traceback" not in hub.log


def test_the_second_hub_with_the_same_state_takes_over_when_the_first_one_hangs(hub: HubProcess, management: RunningServer) -> None:
    hub.add("--kubernetes-version", "v1.36.3", "--key-algorithm", "ECDSA-P256")
    created = hub.data("token", "create", "a", "--ttl", "1h")
    other = HubProcess(hub.place, management, hub.state, name="other")
    other.start()
    try:
        eventually(lambda: "waiting for the lease" in other.log, "the other one to wait")
        holder = KubeClient(Access(server=management.url, ca_pem=management.ca_pem, identity=BearerToken(created["token"])), timeout=600)
        with closing(holder):
            eventually(lambda: _pin(_published(holder)) == created["joinKey"], "the hub to publish its key")
            first = _joined(holder, management, "replica-1", "replica-2")
            assert other.log.count("has been answered") == 0
            hub.pause()
            nodes = _joined(holder, management, "replica-3", "replica-4")
            eventually(lambda: other.log.count("has been answered") == 2, "the other one to log both answers, after it has published them")
            hub.pause(go_on=True)
            eventually(lambda: not hub.runs, "the one that stood still to end")
            assert "was not renewed in time" in hub.log
            led = hub.log.count("leads by the lease")
            hub.start()
            last = _joined(holder, management, "replica-5")
        given = {**first, **nodes, **last}
        records = {record.node: record for record in hub.records() if record.node in given}
        assert {name: record.certificates[1].serial for name, record in records.items()} == given
        eventually(lambda: hub.log.count("has been answered") + other.log.count("has been answered") >= 5, "the answers to be logged")
    finally:
        other.kill()
    eventually(lambda: hub.log.count("leads by the lease") > led, "the first one to lead again")
    hub.run("token", "revoke", "a", created["id"])
    hub.run("cluster", "remove", "a")


def _joined(holder: KubeClient, server: RunningServer, *names: str) -> dict[str, str]:
    """Let nodes of oneinfra join at the same time, and return the serial numbers of their serving certificates."""
    nodes, key = [OldNode(name, server.url) for name in names], _published(holder)
    for node in nodes:
        holder.create(node.request(key))
    for node in nodes:
        eventually(lambda node=node: node.issued(holder.get(NODE_JOIN_REQUEST, node.name)), f"the answer to {node.name}")
    found = {node.name: node.results(holder.get(NODE_JOIN_REQUEST, node.name))["kubeletServerCertificate"] for node in nodes}
    return {name: f"{certificates.first(pem.encode(), source=name).serial:x}" for name, pem in found.items()}


def test_a_hub_without_permission_for_leases_names_the_missing_permission(
    hub: HubProcess, management: RunningServer, tmp_path: Path
) -> None:
    with closing(KubeClient(management.access(), timeout=600)) as admin:
        head = {"name": "secrets-only", "namespace": NAMESPACE}
        group = {"apiGroup": "rbac.authorization.k8s.io"}
        admin.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": head, "rules": RULES[:1]})
        subjects = [{**group, "kind": "User", "name": "secrets-only"}]
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": head, "subjects": subjects}
        admin.create({**binding, "roleRef": {**group, "kind": "Role", "name": "secrets-only"}})
    with closing(KubeClient(management.access("secrets-only", "hubs"), timeout=600)) as client:
        eventually(lambda: _may_list_secrets(client), "the permissions to be known")
    (tmp_path / "less.conf").write_text(kubeconfig(management, "secrets-only", "hubs"))
    told = hub.run("run", "--state-kubeconfig", str(tmp_path / "less.conf"), code=1)
    assert 'let it get, create and update "leases"' in told


def test_a_cluster_of_oneinfra_is_imported_and_its_nodes_continue(hub: HubProcess, management: RunningServer) -> None:
    authority = (management.ca_pem.decode(), management.authority.private_key_pem.bytes().decode())
    pair = dict(zip(("certificate", "privateKey"), authority, strict=True))
    changes = {f"spec__certificateAuthorities__{name}": pair for name in ("apiServerClient", "kubelet", "kubeletClient")}
    # other tests share the API server: kubeadm's reference has the token abcdef
    tokens = {"spec__joinTokens": ["hubold.0123456789abcdef", "hubtwo.0123456789abcdef"], "status__joinTokens": ["hubold.0123456789abcdef"]}
    found = manifest("old", spec__apiServer__ca=pair, status__apiServerEndpoint=management.url, **tokens, **changes)
    (hub.place / "old.yaml").write_text(yaml.dump(found))
    [row] = hub.data("import", str(hub.place / "old.yaml"))
    assert (row["name"], row["tokens"]) == ("old", 2)
    token = BearerToken(found["spec"]["joinTokens"][0])
    with closing(KubeClient(Access(server=management.url, ca_pem=management.ca_pem, identity=token), timeout=600)) as holder:
        public = keys.load(JOIN_KEY.encode(), source="the join key").public_pem().decode()
        eventually(lambda: _published(holder) == public, "the hub to publish the key that old nodes know")
        node = OldNode("from-before", management.url)
        holder.create(node.request(public))
        eventually(lambda: node.issued(holder.get(NODE_JOIN_REQUEST, node.name)), "the answer")
    hub.run("cluster", "remove", "old")


def test_the_hub_has_no_other_permissions_in_the_management_cluster(management: RunningServer) -> None:
    with closing(KubeClient(management.access(USER, "hubs"), timeout=600)) as client:
        with pytest.raises(Forbidden):
            client.list(SECRET, "kube-system")
        with pytest.raises(Forbidden):
            client.list(CONFIG_MAP, NAMESPACE)


def test_a_state_without_its_key_is_not_initialised(hub: HubProcess, tmp_path: Path) -> None:
    told = hub.run("cluster", "list", "--key-file", str(tmp_path / "none.key"), code=1)
    assert "for a new state in Secrets create one: kubewright certs certificate-key" in told
