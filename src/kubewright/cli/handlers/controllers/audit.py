"""`controllers audit`: compares the serving certificates that kubelets currently use with the policy."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.machine import host_port
from kubewright.base.clock import SystemClock, rfc3339
from kubewright.base.errors import CertificateError, CheckFailed, DocumentError, KubewrightError
from kubewright.base.messages import short
from kubewright.base.records import dataclass
from kubewright.cli.handlers import cluster_access
from kubewright.cli.handlers.controllers.reviewing import Reviewer
from kubewright.cli.parsing.inputs import absolute, given_duration
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import table, write_output
from kubewright.controllers import requests
from kubewright.controllers.requests import KUBELET_SERVING
from kubewright.controllers.serving import auditing
from kubewright.controllers.serving.evidence import node_of
from kubewright.host.filesystem.files import Files
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object, identity_of
from kubewright.kube.credentials import Access
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, NODE
from kubewright.pki import certificates
from kubewright.pki.certificates import Certificate

if TYPE_CHECKING:
    import ssl

GOOD, WRONG, UNSIGNED, SILENT = "good", "wrong", "not signed by the cluster", "no answer"
_BAD: Final = frozenset({WRONG, UNSIGNED})
_AT_ONCE: Final = 50
"""How many kubelets are called at the same time."""
_PORT: Final = 10250
_COLUMNS: Final = (
    ("node", "NODE"),
    ("found", "CERTIFICATE"),
    ("expires", "EXPIRES"),
    ("names", "NAMES"),
    ("result", "RESULT"),
    ("problems", "FOUND"),
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place where a certificate was found: a request, or the address of a kubelet. None if there is none."""

    node: str
    found: str
    certificate: Certificate | None = None
    signed: bool = True


def audit(parsed: Parsed) -> int:
    """Print every certificate and what is wrong with it. Raises CheckFailed if something is wrong."""
    access = cluster_access.of_user(parsed.text("kubeconfig"))
    api, now = cluster_access.client(access), SystemClock().now()
    reviewer = Reviewer(parsed, api, now=now)
    if reviewer.policy is None:
        raise DocumentError("the cluster has no policy for serving certificates", remedy="pass a NodeApprovalPolicy with --node-policy")
    places = [*_issued(api, now), *_served(parsed, access, api.list(NODE))]
    rows = [_row(place, reviewer) for place in sorted(places, key=lambda one: (one.node, one.found))]
    shown = [{**row, "names": ",".join(map(short, row["names"])), "problems": "; ".join(row["problems"])} for row in rows]
    write_output(rows, table(shown, columns=_COLUMNS), form=parsed.text("output"))
    bad = [row for row in rows if row["result"] in _BAD]
    if bad:
        nodes = sorted({str(row["node"]) for row in bad})
        raise CheckFailed(
            f"{len(bad)} of {len(rows)} certificates violate the policy",
            detail=f"nodes: {', '.join(map(short, nodes))}",
            remedy="correct the policy, or remove the certificate on the machine and delete its CertificateSigningRequest",
        )
    return 0


def _row(place: Place, reviewer: Reviewer) -> dict[str, Any]:
    row: dict[str, Any] = {"node": place.node, "found": place.found, "expires": "", "names": [], "result": SILENT, "problems": []}
    found = place.certificate
    if found is None or reviewer.policy is None:
        return row
    row |= {"expires": rfc3339(found.not_after), "names": [*found.names.dns, *found.names.ips]}
    if not place.signed:
        return row | {"result": UNSIGNED}
    presented = auditing.in_force(place.node, found)
    problems = auditing.problems(presented, reviewer.evidence(presented, reviewer.policy), reviewer.policy)
    return row | {"result": WRONG if problems else GOOD, "problems": problems}


def _issued(api: KubeAPI, now: datetime) -> Iterator[Place]:
    """Yield the valid certificates that the cluster has issued, as far as their requests still exist."""
    for obj in api.list(CERTIFICATE_SIGNING_REQUEST, field_selector=f"spec.signerName={KUBELET_SERVING}"):
        csr = requests.read(obj)
        if not csr.certificate:
            continue
        try:
            found = certificates.parse(csr.certificate, source=f"the request {csr.name}")[0]
        except CertificateError:
            continue
        if found.not_after > now:
            yield Place(node=node_of(found.common_name) or short(found.common_name), found=f"request {csr.name}", certificate=found)


def _served(parsed: Parsed, access: Access, nodes: Sequence[Object]) -> list[Place]:
    """Call every kubelet, and return the certificates that they serve with."""
    given = absolute(parsed.text("kubelet-certificate-authority"))
    authority = Files().read(PurePosixPath(given)) if given else access.ca_pem
    if authority is None:
        raise DocumentError(f"{given or 'a CA of the kubelets'} does not exist", remedy="pass it with --kubelet-certificate-authority")
    within = given_duration(parsed, "timeout").seconds
    if len(nodes) > _AT_ONCE:
        sys.stderr.write(f"calling {len(nodes)} kubelets\n")
    from kubewright.http import loop, tls

    verified, anyone = tls.client_context(authority), tls.client_context(None, verify=False)
    verified.check_hostname = False  # the names are compared with the policy instead

    async def call_all() -> list[Place]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def call(node: Object) -> list[Place]:
            async with gate:
                return [await _call(identity_of(node)[0], address, port, (verified, anyone), within) for address, port in _endpoints(node)]

        return [place for found in await asyncio.gather(*map(call, nodes)) for place in found]

    return loop.run(call_all)


async def _call(node: str, address: str, port: int, contexts: tuple[ssl.SSLContext, ssl.SSLContext], within: float) -> Place:
    from kubewright.http import tls

    where = host_port(address, port)
    for context, signed in zip(contexts, (True, False), strict=True):
        peer = await tls.peer_at(address, port, context=context, within=within)
        if peer is not None:
            try:
                found = certificates.read(peer.der, source=where)
            except KubewrightError:
                continue
            return Place(node=node, found=where, certificate=found, signed=signed)
    return Place(node=node, found=where)


def _endpoints(node: Object) -> Iterator[tuple[str, int]]:
    """Yield the addresses at which the API server calls a kubelet."""
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or _PORT
    for row in status.get("addresses") or ():
        if row.get("type") == "InternalIP":
            yield str(row.get("address")), int(port)
