"""Asking the cluster for a node's client certificate and waiting for it (spec of the kubelet's TLS bootstrap: CSR, then list and watch)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from kubewright.agent import certificates
from kubewright.agent.timings import Timings
from kubewright.base.errors import Gone, Unreachable, WaitTimeout
from kubewright.kube.answers import EventType
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.pki import csr, keys, pairs
from kubewright.pki.keys import Algorithm
from kubewright.pki.pairs import Pair

_RETRY = 1.0
"""Seconds between two tries to list the request (the kubelet's)."""


async def obtain_pair(api: AsyncKubeAPI, node_name: str, *, timings: Timings) -> Pair:
    """Make a new P-256 key, have it certified, and return both. The key is only in memory.

    Raises CertificateError when the request is refused, WaitTimeout when nobody decides in `timings.certificate_wait`, and what the API
    raises when it cannot be created.
    """
    key = keys.generate(Algorithm.ECDSA_P256)
    request = certificates.client_request(csr.node_client_request(node_name, key), csr.node_client_usages(key))
    created = await api.create(request)
    name = created["metadata"]["name"]
    try:
        async with asyncio.timeout(timings.certificate_wait):
            content = await _wait(api, created)
    except TimeoutError as error:
        raise WaitTimeout(
            f"certificate request {name} was not signed within {timings.certificate_wait:g} s",
            remedy=f"see `kubectl describe csr {name}`: kube-controller-manager approves and signs the requests of nodes",
        ) from error
    return pairs.of(content, key.pem(), source=f"certificate request {name}")


async def _wait(api: AsyncKubeAPI, created: Object) -> bytes:
    """Watch from the moment of creation; list again only where the watch breaks."""
    found: Object | None = created
    while True:
        content = await _follow(api, created, found) if found is not None else None
        if content is not None:
            return content
        found = await _look(api, created)


async def _follow(api: AsyncKubeAPI, created: Object, found: Object) -> bytes | None:
    """Return the certificate, or None when the watch ended without one."""
    name, uid = created["metadata"]["name"], created["metadata"]["uid"]
    content = certificates.issued(found, uid=uid)
    if content is not None:
        return content
    events = api.watch(
        CERTIFICATE_SIGNING_REQUEST, field_selector=f"metadata.name={name}", resource_version=found["metadata"]["resourceVersion"]
    )
    try:
        async with aclosing(events):
            async for event in events:
                if event.type is EventType.DELETED:
                    raise certificates.lost(name)
                if event.type is not EventType.BOOKMARK and (content := certificates.issued(event.object, uid=uid)) is not None:
                    return content
    except (Unreachable, Gone):
        pass  # the list says where we are
    return None


async def _look(api: AsyncKubeAPI, created: Object) -> Object | None:
    name = created["metadata"]["name"]
    try:
        found = await api.list(CERTIFICATE_SIGNING_REQUEST, field_selector=f"metadata.name={name}")
    except Unreachable:
        await asyncio.sleep(_RETRY)
        return None
    if not found:
        raise certificates.lost(name)
    return found[0]
