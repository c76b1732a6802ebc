"""Each permission of the controllers' user is removed once: exactly what its row names fails."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta

import pytest
from controllers_cluster import GARBAGE, Cluster, cluster_info, token
from controllers_kit import NOW, condition, csr, request

from kubewright.base.clock import rfc3339
from kubewright.base.errors import Forbidden, NotFound
from kubewright.http.messages import Request
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Call
from kubewright.kube.daemons.electing import Election
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CONFIG_MAP, LEASE, SECRET
from kubewright.manifests import controllers

pytestmark = pytest.mark.looptime

SIGNERS = {
    "kubelet-client": ("kubernetes.io/kube-apiserver-client-kubelet", ("digital signature", "client auth"), ()),
    "kubelet-serving": ("kubernetes.io/kubelet-serving", ("digital signature", "server auth"), (("dns", "a"),)),
    "client": ("kubernetes.io/kube-apiserver-client", ("client auth",), ()),
    "legacy": ("kubernetes.io/legacy-unknown", ("client auth",), ()),
}
SIGNED = frozenset(f"signs {name}" for name in SIGNERS)
REQUESTS = SIGNED | {"approves", "cleans requests", "fails"}
TOKENS = frozenset({"signs cluster-info", "cleans tokens"})
WATCHES = frozenset({"watches requests", "watches tokens", "watches cluster-info"})
ALL = REQUESTS | TOKENS | WATCHES | {"leads", "tells of failures"}
ROWS = {
    "certificatesigningrequests list": REQUESTS | {"watches requests", "tells of failures"},
    "certificatesigningrequests watch": {"watches requests"},
    "certificatesigningrequests delete": {"cleans requests"},
    "certificatesigningrequests/approval update": {"approves"},
    "certificatesigningrequests/status update": SIGNED | {"fails", "tells of failures"},
    "signers approve kubernetes.io/kube-apiserver-client-kubelet": {"approves"},
    "signers sign kubernetes.io/kube-apiserver-client-kubelet": {"signs kubelet-client"},
    "signers sign kubernetes.io/kubelet-serving": {"signs kubelet-serving", "fails", "tells of failures"},
    "signers sign kubernetes.io/kube-apiserver-client": {"signs client"},
    "signers sign kubernetes.io/legacy-unknown": {"signs legacy"},
    "subjectaccessreviews create": {"approves"},
    "tokenreviews create": frozenset(),
    "configmaps get extension-apiserver-authentication": frozenset(),
    "events create": {"tells of failures"},
    "secrets list": TOKENS | {"watches tokens"},
    "secrets watch": {"watches tokens"},
    "secrets delete": {"cleans tokens"},
    "leases create": ALL - WATCHES,
    "leases get kubewright-controllers": ALL - WATCHES,
    "leases update kubewright-controllers": WATCHES | {"leads"},
    "configmaps list cluster-info": {"signs cluster-info", "watches cluster-info"},
    "configmaps watch cluster-info": {"watches cluster-info"},
    "configmaps update cluster-info": {"signs cluster-info"},
}
"""What fails without a permission. Without a watch nothing new is seen; without updates of the lease the run ends.

Reviews of tokens, and the CA of client certificates, are needed for reading metrics:
unit/kube/test_metrics_access.py.
"""


def rights() -> Iterator[tuple[str, str, str, str, str]]:
    """Namespace (empty: all), group, resource, verb and name (empty: all) of each permission."""
    for role in controllers.rights():
        for rule in role.get("rules", ()):
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield role["metadata"].get("namespace", ""), rule["apiGroups"][0], resource, verb, name


def row(right: tuple[str, str, str, str, str]) -> str:
    return f"{right[2]} {right[3]} {right[4]}".strip()


class AuthorizedKube(AsyncKubeAPI):
    """An API server's authorization by rules, with the admission check for signers."""

    def __init__(self, inner: AsyncKubeAPI, allowed: set[tuple[str, str, str, str, str]]) -> None:
        self._inner = inner
        self._allowed = allowed

    def _check(self, group: str, resource: str, verb: str, name: str, namespace: str) -> None:
        fitting = {(space, group, resource, verb, one) for space in ("", namespace) for one in ("", name)}
        if not fitting & self._allowed:
            raise Forbidden(f"may not {verb} {resource} {name}", code=403)

    def _authorize(self, call: Call) -> None:
        resource = f"{call.resource.plural}/{call.subresource}" if call.subresource else call.resource.plural
        selected = call.query.get("fieldSelector", "").removeprefix("metadata.name=")
        name = "" if call.verb == "create" else call.name or selected
        self._check(call.resource.group, resource, call.verb, name, call.namespace or "")
        verb = {"approval": "approve", "status": "sign"}.get(call.subresource)
        if verb is not None:
            self._check(call.resource.group, "signers", verb, call.body["spec"]["signerName"], "")

    async def send(self, call: Call, /) -> dict:
        self._authorize(call)
        return await self._inner.send(call)

    async def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        self._authorize(call)
        async for event in self._inner.stream(call):
            yield event

    async def exchange(self, request: Request, /) -> None:
        raise Forbidden(request.target, code=403)


def _objects() -> list[dict]:
    old = [condition("Denied", lastUpdateTime=rfc3339(NOW - timedelta(hours=2)))]
    approved = [
        csr(request(names=names), name=name, signer=signer, usages=usages, conditions=[condition("Approved")])
        for name, (signer, usages, names) in SIGNERS.items()
    ]
    bad = csr(request(), name="bad", signer=SIGNERS["kubelet-serving"][0], conditions=[condition("Approved")])
    return [bad, csr(name="pending"), csr(name="old", conditions=old), *approved, cluster_info(), token(), token("garbag", **GARBAGE)]


async def effects(allowed: set[tuple[str, str, str, str, str]]) -> set[str]:
    """Run the controllers with these permissions for a while, and return what succeeded."""
    objects = map(copy.deepcopy, _objects())
    cluster = Cluster(*objects, election=Election(name=controllers.NAME), through=lambda client: AuthorizedKube(client, allowed))
    api = cluster.api

    def there(resource, name: str, namespace: str | None = None) -> dict:
        try:
            return api.get(resource, name, namespace)
        except NotFound:
            return {}

    async with cluster.running(30):
        watched = {resource.plural for resource, _, _ in api.watchers}
        lease = there(LEASE, controllers.NAME, "kube-system").get("spec", {})
        found = {
            "approves": "Approved" in cluster.kinds("pending"),
            "cleans requests": not there(CERTIFICATE_SIGNING_REQUEST, "old"),
            "signs cluster-info": "jws-kubeconfig-abcdef" in there(CONFIG_MAP, "cluster-info", "kube-public")["data"],
            "cleans tokens": not there(SECRET, "bootstrap-token-garbag", "kube-system"),
            "fails": "Failed" in cluster.kinds("bad"),
            "tells of failures": "events" in {kind for kind, _, _ in api.objects},
            "leads": lease.get("holderIdentity") == "me" and cluster.manager.leads,
            "watches requests": "certificatesigningrequests" in watched,
            "watches tokens": "secrets" in watched,
            "watches cluster-info": "configmaps" in watched,
            **{f"signs {name}": "certificate" in there(CERTIFICATE_SIGNING_REQUEST, name)["status"] for name in SIGNERS},
        }
    return {name for name, came_about in found.items() if came_about}


async def test_everything_succeeds_with_all_permissions():
    assert await effects(set(rights())) == ALL


def test_each_permission_has_its_row():
    assert sorted(map(row, rights())) == sorted(ROWS)


@pytest.mark.parametrize("right", tuple(rights()), ids=row)
async def test_a_missing_permission_breaks_what_its_row_names(right):
    assert ALL - await effects(set(rights()) - {right}) == ROWS[row(right)]
