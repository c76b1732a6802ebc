"""Fetches the evidence about one request from all sources of a policy: concurrently, and each with its own time limit.

opened ── fetch(), as often as needed ──> opened ── close() ──> closed: fetches in flight end without evidence
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.apis.node_sources import AskedSource, CallBack, DNSSource, JoinRecordsSource, MachinesSource, WebhookSource
from kubewright.base import unexpected
from kubewright.base.durations import Duration
from kubewright.base.errors import CertificateError, KubewrightError
from kubewright.base.messages import one_line
from kubewright.controllers.serving.evidence import JOIN_RECORDS, Answer, Fetched, node_of
from kubewright.controllers.serving.sources import dns_records
from kubewright.controllers.serving.sources.dns_records import DNSRecords
from kubewright.controllers.serving.sources.interface import EvidenceSource, Question, Tools
from kubewright.controllers.serving.sources.join_records import JoinRecords
from kubewright.controllers.serving.sources.machines import Machines
from kubewright.controllers.serving.sources.webhook import Webhook
from kubewright.http.dns_lookup import DNSResolver
from kubewright.http.tls import Peer
from kubewright.pki import certificates
from kubewright.pki.requests.csr import NODES

T = TypeVar("T")

OPENERS: Final[Mapping[type, tuple[str, Callable[[Any, Tools], EvidenceSource]]]] = {
    JoinRecordsSource: (JOIN_RECORDS, JoinRecords),
    MachinesSource: ("machines", Machines),
    DNSSource: ("dns", DNSRecords),
    WebhookSource: ("webhook", Webhook),
}
"""By the class of a policy's source: its name in evidence, and the function that opens it."""


class Fetcher:
    """The open sources of one policy. Raises KubewrightError for one that cannot be opened: a missing kubeconfig, a broken CA."""

    def __init__(self, policy: NodeApprovalPolicy, tools: Tools) -> None:
        self._policy = policy
        self._sources = [(OPENERS[one.__class__][0], one, OPENERS[one.__class__][1](one, tools)) for one in policy.asked]
        self._resolver = dns_records.resolver(policy.dns_check) if policy.dns_check is not None else None
        self._dialer = Dialer(policy.call_back) if policy.call_back is not None else None

    async def fetch(self, question: Question) -> Fetched:
        """Ask all sources about one request. Sources that do not answer in time are part of the result."""
        answers = asyncio.gather(*(self._answer(name, spec, source, question) for name, spec, source in self._sources))
        resolved, present = self._resolved(question), self._present(question)
        found = await asyncio.gather(answers, resolved, present)
        return Fetched(answers=tuple(found[0]), resolved=found[1], present=found[2][0], present_names=found[2][1])

    async def records(self, question: Question) -> Answer | None:
        """Ask the join records only; None if the policy names none."""
        found = next((one for one in self._sources if one[0] == JOIN_RECORDS), None)
        return await self._answer(*found, question) if found is not None else None

    async def changes(self) -> int:
        """Return a number that grows when the answer of a source may have changed."""
        return sum([await source.changes() for _, _, source in self._sources])

    async def close(self) -> None:
        """Close all sources. Idempotent."""
        for _, _, source in self._sources:
            await source.close()

    async def _answer(self, name: str, spec: AskedSource, source: EvidenceSource, question: Question) -> Answer:
        found = await _within(spec.timeout, source.ask(question))
        return found if isinstance(found, Answer) else Answer(source=name, problem=found)

    async def _resolved(self, question: Question) -> dict[str, frozenset[str] | None]:
        if self._resolver is None or self._policy.dns_check is None:
            return {}
        resolver: DNSResolver = self._resolver
        timeout = self._policy.dns_check.timeout
        found = await asyncio.gather(*(_within(timeout, resolver.addresses(name)) for name in question.names))
        return {name: None if isinstance(one, str) else one for name, one in zip(question.names, found, strict=True)}

    async def _present(self, question: Question) -> tuple[dict[str, str], frozenset[str]]:
        if self._dialer is None:
            return {}, frozenset()
        peers = await asyncio.gather(*map(self._dialer.peer, question.addresses))
        present = {address: peer for address, peer in zip(question.addresses, peers, strict=True) if peer is not None}
        own = [names_of(peer) for peer in present.values() if peer.common_name == question.username]
        names = frozenset.intersection(*own) if own else frozenset()
        return {address: peer.common_name for address, peer in present.items()}, names


class Dialer:
    """Finds out which kubelet answers at an address."""

    def __init__(self, settings: CallBack) -> None:
        from kubewright.http import tls

        self._settings = settings
        self._context = tls.client_context(settings.certificate_authority.encode())
        self._context.check_hostname = False  # only its common name is checked: the addresses are in question

    async def peer(self, address: str) -> Peer | None:
        """Return the kubelet that answers; None if nothing answers, or something without a valid certificate of a kubelet."""
        from kubewright.http import tls

        found = await tls.peer_at(address, self._settings.port, context=self._context, within=self._settings.timeout.seconds)
        return found if found is not None and node_of(found.common_name) and NODES in found.organizations else None


def names_of(peer: Peer) -> frozenset[str]:
    """Return the names and addresses in the certificate of a kubelet."""
    try:
        found = certificates.read(peer.der, source="the certificate of a kubelet").names
    except CertificateError:
        return frozenset()
    return frozenset((*found.dns, *found.ips))


async def _within(limit: Duration, work: Awaitable[T]) -> T | str:
    """Return the result of a look-up, or why there is none."""
    try:
        async with asyncio.timeout(limit.seconds):
            return await work
    except TimeoutError:
        return f"no answer within {limit}"
    except KubewrightError as error:
        return one_line(str(error))
    except Exception as error:  # evidence that cannot be read is no evidence
        unexpected.report("a source of evidence", error)
        return "it failed unexpectedly"
