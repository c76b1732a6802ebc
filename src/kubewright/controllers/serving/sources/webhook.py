"""A webhook: an HTTPS service that knows the names and addresses of nodes.

    POST {"apiVersion": "controllers.kubewright/v1alpha1", "kind": "NodeNamesReview",
          "request": {"id": "csr-7kx2p", "node": "a", "names": ["a"], "addresses": ["10.1.0.7"]}}
    200  {"apiVersion": "controllers.kubewright/v1alpha1", "kind": "NodeNamesReview",
          "response": {"id": "csr-7kx2p", "node": "a", "names": ["a.example.com"], "addresses": ["10.1.0.7"]}}

The response repeats the id and the node: one that belongs to another request, or is about another node, is not used. It
lists what the node has, exact names and addresses; a node that the service does not know has empty lists.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.apis.node_approval import API_VERSION
from kubewright.apis.node_sources import WebhookSource
from kubewright.controllers.serving.evidence import Answer
from kubewright.controllers.serving.sources.interface import MOST_NAMES, NoEvidence, Question, Tools
from kubewright.http.messages import Limits, Request
from kubewright.pki import node_names

KIND: Final = "NodeNamesReview"
LARGEST: Final = 64 * 1024
"""Bytes of a response: sixty-four names of 253 characters take a quarter of it."""
_HEADERS: Final = {"content-type": "application/json", "accept": "application/json"}


class Webhook:
    """Sends each question to the service."""

    def __init__(self, source: WebhookSource, _: Tools) -> None:
        from kubewright.http import aio, tls  # only policies with a webhook need them

        url = urlsplit(source.url)
        self._name = f"webhook {url.netloc}"
        self._target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        context = tls.anonymous_context(source.certificate_authority.encode())
        self._timeout = source.timeout.seconds
        limits = Limits(body=LARGEST, connect=self._timeout)
        self._transport = aio.Transport(f"https://{url.netloc}", context=context, limits=limits)

    async def changes(self) -> int:
        return 0

    async def ask(self, question: Question) -> Answer:
        asked = {"id": question.request, "node": question.node, "names": list(question.names), "addresses": list(question.addresses)}
        body = json.dumps({"apiVersion": API_VERSION, "kind": KIND, "request": asked}).encode()
        response = await self._transport.exchange(Request("POST", self._target, headers=_HEADERS, body=body), timeout=self._timeout)
        if response.status != 200:
            raise NoEvidence(f"it answered with status {response.status}", remedy="look into its log")
        return Answer(source=self._name, gives=question.sans & given_by(response.body, question))

    async def close(self) -> None:
        await self._transport.close()


def given_by(body: bytes, question: Question) -> frozenset[str]:
    """Return the names and addresses in a response, in canonical form. Raises NoEvidence."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NoEvidence("its response is not JSON", remedy="look into its log") from error
    if not isinstance(found, dict) or (found.get("apiVersion"), found.get("kind")) != (API_VERSION, KIND):
        raise NoEvidence(f"its response is not a {KIND} of {API_VERSION}", remedy="check the path of its URL")
    response = found.get("response")
    if not isinstance(response, dict) or (response.get("id"), response.get("node")) != (question.request, question.node):
        raise NoEvidence("its response is about another request", remedy="look into its log")
    names, addresses = _texts(response.get("names")), _texts(response.get("addresses"))
    if wrong := [one for one in names if formats.subdomain_problems(one)] or [one for one in addresses if formats.address(one) is None]:
        raise NoEvidence(f"its response has {len(wrong)} values that are not DNS names or addresses", remedy="look into its log")
    return frozenset((*names, *map(node_names.known_as, addresses)))


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > MOST_NAMES or not all(isinstance(one, str) for one in value):
        raise NoEvidence(f"its response must have lists of at most {MOST_NAMES} names and addresses", remedy="look into its log")
    return value
