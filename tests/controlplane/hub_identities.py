"""Nodes with the credentials that a hub gave them: what they may write to the cluster, and what they may request from the hub."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from local_kit import eventually
from old_peer import OldNode
from server_kit import RunningServer

from kubewright.apis import node_join_requests
from kubewright.apis.kubeconfig import parse
from kubewright.apis.node_join_requests import LEAVE_ANSWER, LEAVE_PROOF, LEAVING_LABEL
from kubewright.base import yaml
from kubewright.base.errors import NotFound
from kubewright.enrollment.protocol import leave_proofs
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import ClientCertificate
from kubewright.kube.kubeconfigs import access_from_kubeconfig
from kubewright.kube.resources import NODE, NODE_JOIN_REQUEST
from kubewright.pki import certificates

MARKER = "marker"
"""A Node with which tests find out what the hub has already read."""


class Kubelet:
    """A node that has joined. `holder` is a client with a token, `admin` deletes requests, as happens after a while."""

    def __init__(self, name: str, server: RunningServer, *, holder: KubeClient, admin: KubeClient, key: str) -> None:
        self.name = name
        self._peer = OldNode(name, server.url)
        self._holder = holder
        self._admin = admin
        self._key = key
        self._access: Any = None

    def ask(self, *sans: str) -> str:
        """Request these names, with the key of the join; return the hub's answer."""
        with contextlib.suppress(NotFound):
            self._admin.delete(NODE_JOIN_REQUEST, self.name)
        self._peer.sans = sans
        self._holder.create(self._peer.request(self._key))
        found: dict[str, Any] = {}

        def answered() -> bool:
            found.update(self._holder.get(NODE_JOIN_REQUEST, self.name))
            condition = node_join_requests.condition_of(found)
            return condition is not None and condition.status in {"True", "False"}

        eventually(answered, f"the answer to {self.name}")
        [condition] = found["status"]["conditions"]
        if condition["status"] == "True":
            config = self._peer.results(found)["kubeConfig"].encode()
            self._access = access_from_kubeconfig(parse(yaml.load_one(config, source="kubeConfig")))
        return f"{condition['reason']}: {condition['message']}"

    @property
    def client(self) -> KubeClient:
        """The cluster, with the credentials of this node's kubelet."""
        return KubeClient(self._access, timeout=600)

    def register(self) -> None:
        """Create its Node."""
        with contextlib.closing(self.client) as client:
            client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})

    def report(self, *addresses: str, dns: tuple[str, ...] = ()) -> None:
        """Write the status of its Node, as with every heartbeat."""
        rows = [{"type": "InternalIP", "address": one} for one in addresses] + [{"type": "InternalDNS", "address": one} for one in dns]
        body = [{"op": "add", "path": "/status/addresses", "value": rows}]
        with contextlib.closing(self.client) as client:
            client.patch(NODE, self.name, body, type="json", subresource="status")

    def proof(self, about: str, uid: str) -> str:
        """Sign that a Node leaves, possibly another one."""
        identity = self._access.identity
        assert isinstance(identity, ClientCertificate)
        pair = certificates.pair_of(identity.cert_pem, identity.key_pem, source=self.name)
        return leave_proofs.prove(about, uid, pair).text


def mark_as_leaving(client: KubeClient, name: str, proof: str) -> None:
    """Write to a Node that it leaves."""
    marks = {"labels": {LEAVING_LABEL: "true"}, "annotations": {LEAVE_PROOF: proof, LEAVE_ANSWER: None}}
    client.patch(NODE, name, {"metadata": marks}, type="merge")


def wait_until_seen(admin: KubeClient, name: str = MARKER) -> None:
    """Wait until the hub has seen everything that was written to Nodes: it answers for one of them, whose event is the last one of the same watch."""
    mark_as_leaving(admin, name, os.urandom(8).hex())
    eventually(lambda: refusal(admin, name), "the hub to see the Nodes")


def refusal(client: KubeClient, name: str) -> str:
    """Return the reason why the hub does not let a node leave."""
    return str(client.get(NODE, name)["metadata"].get("annotations", {}).get(LEAVE_ANSWER, ""))
