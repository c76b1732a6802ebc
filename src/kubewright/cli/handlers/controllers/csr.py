"""`csr list`, `show` and `explain`: certificate requests, what pending ones wait for, and the controllers' decisions about them."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from kubewright.apis.node_approval import STRICT
from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.errors import CertificateError, DocumentError
from kubewright.base.records import dataclass
from kubewright.cli.handlers import cluster_access
from kubewright.cli.handlers.controllers import reviewing
from kubewright.cli.handlers.controllers.reviewing import Reviewer
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import human_duration, table, write_result
from kubewright.controllers import explaining, requests
from kubewright.controllers.explaining import Prediction
from kubewright.controllers.requests import CLIENT_KUBELET, KUBELET_SERVING, SigningRequest
from kubewright.controllers.serving import journal
from kubewright.controllers.serving.evidence import node_of
from kubewright.host.filesystem.files import Files
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.pki.requests.csr import NODES

_COLUMNS = (
    ("name", "NAME"),
    ("age", "AGE"),
    ("signer", "SIGNER"),
    ("requester", "REQUESTER"),
    ("for", "FOR"),
    ("names", "NAMES"),
    ("state", "STATE"),
    ("reason", "REASON"),
)

_DECISIONS = (("controller", "CONTROLLER"), ("outcome", "WOULD"), ("reason", "BECAUSE"))
_CHECKS = (("id", "CHECK"), ("result", "RESULT"), ("summary", "REQUIRES"), ("problem", "FOUND"))
_ANSWERS = (("source", "SOURCE"), ("gives", "GIVES"), ("others", "BELONG TO OTHERS"), ("problem", "SAYS"))


def list_requests(parsed: Parsed) -> int:
    """List the requests of a cluster, the oldest first, with the reason of their state."""
    now, api = SystemClock().now(), _api(parsed)
    found = [requests.read(csr) for csr in api.list(CERTIFICATE_SIGNING_REQUEST)]
    if parsed.flag("pending"):
        found = [csr for csr in found if not csr.decided and not csr.certificate]
    found.sort(key=lambda csr: (csr.created or now, csr.name))
    reviewer, form = Reviewer(parsed, api, now=now), parsed.text("output")
    if form != "text":
        write_result([{**_as_map(csr), "reason": _reason(csr, reviewer)} for csr in found], form=form)
    elif not found:
        sys.stderr.write(f"there are no {'pending ' if parsed.flag('pending') else ''}certificate requests\n")
    else:
        sys.stdout.write(table([{**_row(csr, now), "reason": _reason(csr, reviewer)} for csr in found], columns=_COLUMNS))
    return 0


def show(parsed: Parsed) -> int:
    """Show one request with all of its contents."""
    api = _api(parsed)
    csr = requests.read(api.get(CERTIFICATE_SIGNING_REQUEST, parsed.text("name")))
    found = {**_as_map(csr), "reason": _reason(csr, Reviewer(parsed, api, now=SystemClock().now()))}
    write_result(found, form="yaml" if parsed.text("output") == "text" else parsed.text("output"))
    return 0


def explain(parsed: Parsed) -> int:
    """Explain the decision of each controller about a request of the cluster, or about a file."""
    name, now = parsed.text("name"), SystemClock().now()
    api: KubeAPI | None = None
    if Path(name).is_file():
        csr = requests.read(_from_file(parsed, Path(name)))
    else:
        api = _api(parsed)
        csr = requests.read(api.get(CERTIFICATE_SIGNING_REQUEST, name))
    predictions = explaining.explain(csr, answers=reviewing.answers(csr, api), now=now)
    by_policy = _ByPolicy()
    if parsed.text("node-policy") or (api is not None and csr.signer in {KUBELET_SERVING, CLIENT_KUBELET}):
        by_policy = _explained_by_policy(csr, Reviewer(parsed, api or _api(parsed), now=now), now)
    decisions = [one.as_map() for one in (*predictions, *by_policy.predictions)]
    form = parsed.text("output")
    if form != "text":
        extra = {"checks": by_policy.checks, "sources": by_policy.sources} if by_policy.checks else {}
        write_result({**_as_map(csr), "decisions": decisions, **extra}, form=form)
        return 0
    tables = ((decisions, _DECISIONS), (by_policy.checks, _CHECKS), (by_policy.sources, _ANSWERS))
    sys.stdout.write("\n".join(table(rows, columns=columns) for rows, columns in tables if rows))
    return 0


@dataclass(frozen=True)
class _ByPolicy:
    """What an approver by policy would decide, what each of its checks finds, and what each source has answered."""

    predictions: Sequence[Prediction] = ()
    checks: Sequence[dict[str, str]] = ()
    sources: Sequence[dict[str, str]] = ()


def _explained_by_policy(csr: SigningRequest, reviewer: Reviewer, now: datetime) -> _ByPolicy:
    policy = reviewer.policy
    if policy is None:
        return _ByPolicy()
    if csr.signer != CLIENT_KUBELET:
        evidence = reviewer.evidence(csr, policy)
        prediction = explaining.serving_approver(csr, evidence, policy, now=now)
        return _ByPolicy([prediction], explaining.serving_checks(csr, evidence, policy), explaining.source_answers(evidence))
    if policy.clients != STRICT:
        return _ByPolicy()
    known = reviewer.client_evidence(csr)
    return _ByPolicy([explaining.client_approver(csr, known, policy, now=now)], explaining.client_checks(csr, known, policy))


def _api(parsed: Parsed) -> KubeAPI:
    return cluster_access.client(cluster_access.of_user(parsed.text("kubeconfig")))


def _from_file(parsed: Parsed, path: Path) -> Mapping[str, Any]:
    """Read a CertificateSigningRequest, or PEM, as if it had been sent with the usages and the signer of the flags."""
    content = Files().read(PurePosixPath(path.absolute())) or b""
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
        raise DocumentError(f"{path} contains no certificate request", remedy="pass a PEM file, or one with a CertificateSigningRequest")
    return found


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
        "key": _key(csr),
        "request": _contents(csr),
    }


def _reason(csr: SigningRequest, reviewer: Reviewer) -> str:
    """Return why a request is in its state: what a pending one waits for, or the reason of the latest condition."""
    return csr.conditions[-1].reason if csr.conditions else reviewer.waits_for(csr)


def _key(csr: SigningRequest) -> dict[str, str]:
    digest = journal.key_digest(csr)
    return {"sha256": digest, "code": code(digest)} if digest else {}


def code(digest: str) -> str:
    """Return a short form of a key's digest that people can compare: 12 characters of base32 in three groups."""
    text = base64.b32encode(bytes.fromhex(digest)).decode()
    return "-".join(text[start : start + 4] for start in (0, 4, 8))


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
