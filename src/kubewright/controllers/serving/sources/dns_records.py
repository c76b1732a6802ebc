"""DNS: a node has the names that the policy derives from its name, and the addresses to which they resolve.

An address belongs to the node only if its reverse record leads back to one of the names, unless the policy says that
forward records are enough. Otherwise the administrator of a zone of names could assign the addresses of other networks.
"""

from __future__ import annotations

import asyncio

from kubewright.apis import formats, node_sources
from kubewright.apis.node_sources import NODE_NAME, DNSCheck, DNSSource
from kubewright.controllers.serving.evidence import Answer
from kubewright.controllers.serving.sources.interface import MOST_NAMES, NoEvidence, Question, Tools
from kubewright.http.dns_lookup import DNSResolver


class DNSRecords:
    """Looks up the names of the requester's node."""

    def __init__(self, source: DNSSource, _: Tools) -> None:
        self._source = source
        self._resolver = resolver(source)

    async def changes(self) -> int:
        return 0

    async def ask(self, question: Question) -> Answer:
        names = [name for text in self._source.names if not formats.subdomain_problems(name := text.replace(NODE_NAME, question.node))]
        found = dict(zip(names, await asyncio.gather(*map(self._resolver.addresses, names)), strict=True))
        known = frozenset(name for name, addresses in found.items() if addresses)
        addresses = frozenset[str]().union(*found.values())
        if len(addresses) > MOST_NAMES:
            raise NoEvidence(f"the names of {question.node} have {len(addresses)} addresses", remedy="correct the zone")
        asked = sorted(addresses & frozenset(question.addresses))
        if not self._source.forward_only:
            back = await asyncio.gather(*map(self._resolver.names, asked))
            asked = [address for address, led in zip(asked, back, strict=True) if led & known]
        return Answer(source="dns", gives=(known & frozenset(question.names)) | frozenset(asked))

    async def close(self) -> None:
        return


def resolver(source: DNSSource | DNSCheck) -> DNSResolver:
    """Return a resolver that uses the DNS servers of a policy."""
    return DNSResolver(tuple(map(node_sources.resolver, source.resolvers)), timeout=source.timeout.seconds)
