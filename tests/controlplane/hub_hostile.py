"""Many hostile requests with a valid token, together with good requests of others: the outcome of each, and the delay of the good ones."""

from __future__ import annotations

import base64
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from hub_process import HubProcess
from local_kit import eventually
from old_peer import OldHub, OldNode
from server_kit import RunningServer

from kubewright.apis import node_join_requests
from kubewright.base.errors import Invalid
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.resources import CONFIG_MAP, NODE_JOIN_REQUEST

HEAD: Final = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
FLOODERS: Final = 2
GOOD: Final = 30
REJECTED: Final = "rejected by the API server"
_SIZES: Final = (0, 11, 12, 27, 28)
_PREFIX: Final = "hostile-"


@dataclass(frozen=True, kw_only=True)
class Beset:
    """The result.

    `alone` and `beside` are the 99th percentiles of good joins in seconds, without and with hostile requests;
    `memory` is the hub's growth in MiB.
    """

    alone: float
    beside: float
    ends: Mapping[str, int]
    left: int
    memory: float

    @property
    def told(self) -> str:
        """The result as a sentence."""
        return (
            f"good joins: 99 % within {self.beside:.2f} s, {self.beside / self.alone:.1f} times the time without hostile requests;"
            f" the hub grew by {self.memory:.0f} MiB, {self.left:,} requests remain"
        )


def expected(count: int) -> Counter[str]:
    """Return how this many end, by reason, if none is deleted before it is seen."""
    return Counter(reason for _, (reason, _) in zip(range(count), _kinds({}, {}, {}), strict=False))


def beset(hub: HubProcess, server: RunningServer, token: str, *, count: int) -> Beset:
    """Send good requests alone, then together with this many hostile ones."""
    with closing(_holder(server, token)) as holder:
        join_key = holder.get(CONFIG_MAP, "oneinfra-join", "oneinfra-system")["data"]["joinKey"]
        alone = [_join(holder, OldNode(f"alone-{number}", server.url), join_key) for number in range(GOOD)]
        before = hub.peak_memory
        ends: Counter[str] = Counter()
        with ThreadPoolExecutor(FLOODERS) as pool:
            floods = [pool.submit(_flood, server, token, join_key, range(first, count, FLOODERS)) for first in range(FLOODERS)]
            beside = [_join(holder, OldNode(f"beside-{number}", server.url), join_key) for number in range(GOOD)]
            while not all(one.done() for one in floods):
                beside.append(_join(holder, OldNode(f"beside-{len(beside)}", server.url), join_key))
            for one in floods:
                ends[REJECTED] += one.result()
    with closing(KubeClient(server.access(), timeout=600)) as admin:
        eventually(lambda: all(_reason(one) for one in _hostile(admin)), "every hostile request to be answered")
        left = _hostile(admin)
        ends.update(_reason(one) for one in left)
    return Beset(alone=_p99(alone), beside=_p99(beside), ends=ends, left=len(left), memory=hub.peak_memory - before)


def _flood(server: RunningServer, token: str, join_key: str, numbers: range) -> int:
    """Send the requests with these numbers; returns how many the API server did not accept."""
    good = OldNode("template", server.url, ("10.9.9.9",)).request(join_key)["spec"]
    foreign = OldNode("foreign", server.url).request(OldHub().public_pem)["spec"]
    rejected = 0
    with closing(_holder(server, token)) as holder:
        replay = holder.get(NODE_JOIN_REQUEST, "alone-0")["spec"]
        specs = _kinds(good, foreign, replay)
        wanted = set(numbers)
        for number in range(numbers.stop):
            _, spec = next(specs)
            if number not in wanted:
                continue
            try:
                holder.create({**HEAD, "metadata": {"name": f"{_PREFIX}{number}"}, "spec": spec})
            except Invalid:
                rejected += 1
    return rejected


def _kinds(good: Mapping[str, Any], foreign: Mapping[str, Any], replay: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield endless pairs of a reason and a request that is refused for it, kind after kind."""
    while True:
        for size in _SIZES:
            text = base64.b64encode(os.urandom(size)).decode().rstrip("=")
            yield "Malformed", {**good, "symmetricKey": text}
            yield "Malformed", {**good, "extraSANs": [text]}
            if size:  # without an endpoint, the cluster's own is used
                yield "Malformed", {**good, "apiServerEndpoint": text}
        yield "Malformed", {**good, "symmetricKey": f"{good.get('symmetricKey')}=="}
        yield REJECTED, {**good, "symmetricKey": "A" * 5000}
        yield "Malformed", foreign
        yield "Replayed", replay


def _join(holder: KubeClient, node: OldNode, join_key: str) -> float:
    """Join as a node; returns the seconds from before the request was sent until its answer existed."""
    request = node.request(join_key)
    began = time.monotonic()
    holder.create(request)
    eventually(lambda: node.issued(holder.get(NODE_JOIN_REQUEST, node.name)), f"the answer to {node.name}")
    return time.monotonic() - began


def _holder(server: RunningServer, token: str) -> KubeClient:
    return KubeClient(Access(server=server.url, ca_pem=server.ca_pem, identity=BearerToken(token)), timeout=600)


def _hostile(admin: KubeClient) -> list[Any]:
    return [one for one in admin.list(NODE_JOIN_REQUEST) if one["metadata"]["name"].startswith(_PREFIX)]


def _reason(request: Mapping[str, Any]) -> str:
    condition = node_join_requests.condition_of(request)
    return condition.reason if condition is not None else ""


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[round(len(seconds) * 0.99) - 1]
