"""`csr list`, `show` and `explain`: descriptions of certificate requests, and the controllers' decisions about them."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, CertificateError, DocumentError
from kubewright.cli.handlers import cluster_access
from kubewright.cli.handlers.controllers import evidence_tools
from kubewright.cli.parsing.inputs import absolute
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import human_duration, table, write_result
from kubewright.controllers import approving, explaining, requests
from kubewright.controllers.approving import Ask
from kubewright.controllers.requests import SigningRequest
from kubewright.controllers.serving import deciding
from kubewright.controllers.serving.evidence import Evidence, Fetched, node_of
from kubewright.controllers.serving.gathering import API_SERVERS, Gatherer
from kubewright.controllers.serving.policies import PolicyFile
from kubewright.host.filesystem.files import Files
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import identity_of
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, ENDPOINTS
from kubewright.pki.requests.csr import NODES

_COLUMNS = (
    ("name", "NAME"),
    ("age", "AGE"),
    ("signer", "SIGNER"),
    ("requester", "REQUESTER"),
    ("for", "FOR"),
    ("names", "NAMES"),
    ("state", "STATE"),
)

_CHECKS = (("id", "CHECK"), ("result", "RESULT"), ("summary", "REQUIRES"), ("problem", "FOUND"))
_ANSWERS = (("source", "SOURCE"), ("gives", "GIVES"), ("others", "BELONG TO OTHERS"), ("problem", "SAYS"))


def list_requests(parsed: Parsed) -> int:
    """List the requests of a cluster, the oldest first."""
    now = SystemClock().now()
    found = [requests.read(csr) for csr in _api(parsed).list(CERTIFICATE_SIGNING_REQUEST)]
    found.sort(key=lambda csr: (csr.created or now, csr.name))
    form = parsed.text("output")
    if form != "text":
        write_result([_as_map(csr) for csr in found], form=form)
    elif not found:
        sys.stderr.write("there are no certificate requests\n")
    else:
        sys.stdout.write(table([_row(csr, now) for csr in found], columns=_COLUMNS))
    return 0


def show(parsed: Parsed) -> int:
    """Show one request with all of its contents."""
    csr = requests.read(_api(parsed).get(CERTIFICATE_SIGNING_REQUEST, parsed.text("name")))
    found = _as_map(csr)
    write_result(found, form="yaml" if parsed.text("output") == "text" else parsed.text("output"))
    return 0


def explain(parsed: Parsed) -> int:
    """Explain the decision of each controller about a request of the cluster, or about a file."""
    name = parsed.text("name")
    api: KubeAPI | None = None
    if Path(name).is_file():
        csr = requests.read(_from_file(parsed, Path(name)))
    else:
        api = _api(parsed)
        csr = requests.read(api.get(CERTIFICATE_SIGNING_REQUEST, name))
    answers = _answers(csr, api)
    now = SystemClock().now()
    found = explaining.explain(csr, answers=answers, now=now)
    checks: list[dict[str, str]] = []
    said: list[dict[str, str]] = []
    if parsed.text("node-policy"):
        policy = PolicyFile(PurePosixPath(absolute(parsed.text("node-policy"))), read=Files().read, tools=evidence_tools.tools())
        policy.load()
        evidence = _evidence(csr, _known(api or _api(parsed)), policy, now=now)
        found.append(explaining.serving_approver(csr, evidence, policy.current, now=now))
        checks = explaining.serving_checks(csr, evidence, policy.current)
        said = explaining.source_answers(evidence)
    form = parsed.text("output")
    if form != "text":
        extra = {"checks": checks, "sources": said} if checks else {}
        write_result({**_as_map(csr), "decisions": [one.as_map() for one in found], **extra}, form=form)
    else:
        columns = (("controller", "CONTROLLER"), ("outcome", "WOULD"), ("reason", "BECAUSE"))
        sys.stdout.write(table([one.as_map() for one in found], columns=columns))
        for rows, shown in ((checks, _CHECKS), (said, _ANSWERS)):
            if rows:
                sys.stdout.write("\n" + table(rows, columns=shown))
    return 0


def _evidence(csr: SigningRequest, gatherer: Gatherer, policy: PolicyFile, *, now: datetime) -> Evidence:
    """Gather the evidence about a request; ask the sources if what the cluster has does not decide."""
    evidence = gatherer.gather(csr, policy.current, now=now)
    if not isinstance(deciding.decide(csr, evidence, policy.current, now=now), deciding.Ask):
        return evidence

    async def fetched() -> Fetched:
        try:
            return await policy.sources.fetch(gatherer.question(csr))
        finally:
            await policy.close()

    from kubewright.http import loop

    return evidence.completed(loop.run(fetched))


def _known(api: KubeAPI) -> Gatherer:
    """Read the objects that the approver of serving certificates watches."""
    gatherer = Gatherer()
    for resource, reader in gatherer.readers.items():
        namespace = API_SERVERS[0] if resource is ENDPOINTS else None
        for obj in api.list(resource, namespace):
            if resource is not ENDPOINTS or identity_of(obj)[0] == API_SERVERS[1]:
                reader(WatchEvent(EventType.ADDED, obj))
    return gatherer


def _api(parsed: Parsed) -> KubeAPI:
    return cluster_access.client(cluster_access.of_user(parsed.text("kubeconfig")))


def _from_file(parsed: Parsed, path: Path) -> Mapping[str, Any]:
    """Read a CertificateSigningRequest, or PEM, as if it had been sent with the usages and the signer of the flags."""
    content = path.read_bytes()
    if b"-----BEGIN" in content and b"kind:" not in content:
        spec = {
            "request": base64.b64encode(content).decode(),
            "signerName": parsed.text("signer"),
            "usages": list(parsed.strings("usages")),
            "username": parsed.text("username"),
            "groups": [NODES] if node_of(parsed.text("username")) else [],
        }
        return {"metadata": {"name": path.name}, "spec": spec}
    found = yaml.load(content.decode("utf-8", "replace"))
    if not isinstance(found, dict) or found.get("kind") != CERTIFICATE_SIGNING_REQUEST.kind:
        raise DocumentError(f"{path} contains no certificate request", remedy="name a file of PEM, or one with a CertificateSigningRequest")
    return found


def _answers(csr: SigningRequest, api: KubeAPI | None) -> dict[str, bool]:
    """Check the requester's permissions in the cluster, as the approver does.

    Without a cluster, or permission to check, they are unknown.
    """
    answers: dict[str, bool] = {}
    while api is not None and isinstance(decision := approving.decide(csr, answers), Ask):
        try:
            review = api.create(approving.review(csr, decision.subresource))
        except APIError:
            break
        answers[decision.subresource] = bool((review.get("status") or {}).get("allowed"))
    return answers


def _as_map(csr: SigningRequest) -> dict[str, object]:
    return {
        "name": csr.name,
        "signer": csr.signer,
        "requester": csr.username,
        "groups": list(csr.groups),
        "usages": list(csr.usages),
        "expirationSeconds": csr.expiration_seconds,
        "created": csr.created,
        "state": csr.state,
        "conditions": [{"type": one.type, "reason": one.reason, "message": one.message} for one in csr.conditions],
        "request": _contents(csr),
    }


def _contents(csr: SigningRequest) -> dict[str, object]:
    try:
        return explaining.contents(csr.details())
    except CertificateError as error:
        return {"unreadable": str(error)}


def _row(csr: SigningRequest, now: datetime) -> dict[str, str]:
    age = human_duration((now - csr.created).total_seconds()) if csr.created is not None else ""
    row = {"name": csr.name, "age": age, "signer": csr.signer, "requester": csr.username, "state": csr.state}
    try:
        details = csr.details()
    except CertificateError:
        return row | {"for": "(unreadable)"}
    names = (*details.names.dns, *details.names.addresses, *details.names.emails, *details.names.uris)
    return row | {"for": details.common_name, "names": ",".join(names)}
