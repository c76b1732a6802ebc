"""Checks that the other members of etcd are stopped before a new cluster is made from the data of one.

A member that still runs could serve the old data: one Kubernetes cluster would then write to two etcd clusters. Its
client port and its API server are asked as well as its peer port, because one of them may answer where another one is
blocked. A machine that refuses connections to its peer port is up and does not run etcd. A machine that does not answer
at all may only be unreachable from here, so the user must confirm that it is gone.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

from kubewright.apis.machine import url as of_port
from kubewright.base.deadlines import carried
from kubewright.base.errors import CheckFailed
from kubewright.base.records import dataclass
from kubewright.http import sync, tls
from kubewright.http.failures import NoAnswer, Reason

WITHIN = 3.0
"""Seconds for the answer of a machine."""
_COMMAND = "kubewright etcd restore --fence"


class Standing(enum.Enum):
    """The state of a member, as its ports show it."""

    STOPPED = "stopped"
    RUNNING = "running"
    SILENT = "silent"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another member. `url` is its peer URL, or another one that answers; '' if it is unknown. `problem` is why it is silent."""

    name: str
    url: str
    standing: Standing
    problem: str = ""

    @property
    def shown(self) -> str:
        """Its description in messages."""
        return f"{self.name} at {self.url}" if self.url else self.name


UNKNOWN = Peer(
    name="other members",
    url="",
    standing=Standing.SILENT,
    problem="the member of this machine does not answer, so it is unknown whether there are others",
)
"""Stands for the other members if it is unknown whether there are any."""


def look(peers: Mapping[str, str], *, ports: Sequence[int] = (), unknown: Sequence[str] = ()) -> list[Peer]:
    """Connect to the peer URLs of other members and to these ports of their machines, all at once.

    `unknown` are names of members without a known URL.
    """
    places = [(name, url) for name, peer in peers.items() for url in (peer, *_beside(peer, ports))]
    with ThreadPoolExecutor(max_workers=max(1, len(places))) as threads:
        found = list(threads.map(carried(_dialled), *zip(*places, strict=True))) if places else []
    shown: dict[str, Peer] = {}
    for one in found:
        if one.name not in shown or (one.standing is Standing.RUNNING and shown[one.name].standing is not Standing.RUNNING):
            shown[one.name] = one
    return [*shown.values(), *(Peer(name=name, url="", standing=Standing.SILENT, problem="its address is not known") for name in unknown)]


def _beside(peer_url: str, ports: Sequence[int]) -> list[str]:
    """Return the URLs of these ports on the machine of a member."""
    host = urlsplit(peer_url).hostname
    return [of_port(host, port) for port in ports] if host else []


def _dialled(name: str, url: str) -> Peer:
    context = tls.anonymous_context(None, verify=False) if url.startswith("https:") else None
    with closing(sync.Transport(url, context=context)) as transport:
        try:
            transport.request("GET", "/version", timeout=WITHIN)
        except NoAnswer as error:
            if error.reason is Reason.REFUSED:
                return Peer(name=name, url=url, standing=Standing.STOPPED)
            if error.reason in (Reason.TIMED_OUT, Reason.NO_ROUTE, Reason.DNS):
                return Peer(name=name, url=url, standing=Standing.SILENT, problem=error.reason.value)
    return Peer(name=name, url=url, standing=Standing.RUNNING)


def require_stopped(peers: Sequence[Peer], *, gone: bool) -> None:
    """Require that no other member runs.

    `gone`: the user confirms that those which do not answer no longer exist. Raises CheckFailed.
    """
    running = [one for one in peers if one.standing is Standing.RUNNING]
    if running:
        raise CheckFailed(
            "other members of etcd are running, or their API servers are, and could continue with the old data",
            detail="\n".join(f"{one.shown} answers" for one in running),
            remedy=f"stop them: run `{_COMMAND}` on each of these machines, then the same command here again",
        )
    silent = [one for one in peers if one.standing is Standing.SILENT]
    if silent and not gone:
        raise CheckFailed(
            "it is unknown whether other members of etcd are running",
            detail="\n".join(f"{one.shown}: {one.problem}" for one in silent),
            remedy=f"run `{_COMMAND}` on these machines; if they no longer exist, pass --peers-are-gone",
        )
