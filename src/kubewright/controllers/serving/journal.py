"""The journal of decisions about certificate requests: one line of JSON for each, in a file or on standard output.

Texts that come from a requester are cut to 64 characters, like those in messages: the readers of a journal have more
rights than the requester.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from kubewright.base.clock import rfc3339
from kubewright.base.errors import CertificateError
from kubewright.base.messages import short
from kubewright.base.records import dataclass
from kubewright.controllers.requests import SigningRequest
from kubewright.controllers.serving.deciding import Approve, Decision, Deny, Wait
from kubewright.kube.core import Object, metadata

Write = Callable[[str], None]
"""Appends a line to the journal."""

_MOST_NAMES: Final = 20
"""Names and addresses of a request that are listed: one with more is denied."""
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An outcome in the form of the journal. `by` is the controller or the person; `policy` the version of the policy in force."""

    outcome: str
    by: str
    reason: str = ""
    message: str = ""
    check: str = ""
    policy: str = ""
    override: str = ""
    """The reason for which a person decided against the policy."""


def verdict(decision: Decision, *, by: str, policy: str) -> Verdict | None:
    """Return the journal's form of a decision; None if nothing was decided."""
    match decision:
        case Approve():
            return Verdict(outcome="approve", by=by, policy=policy)
        case Deny(check=check, reason=reason, message=message):
            return Verdict(outcome="deny", by=by, check=check, reason=reason, message=message, policy=policy)
        case Wait(check=check, reason=reason, message=message):
            return Verdict(outcome="wait", by=by, check=check, reason=reason, message=message, policy=policy)
    return None


def line(csr: SigningRequest, found: Object, verdict: Verdict, *, now: datetime) -> str:
    """Return the line about one decision. `found` is the object that it was based on."""
    entry: dict[str, Any] = {
        "time": rfc3339(now),
        "by": verdict.by,
        "outcome": verdict.outcome,
        "check": verdict.check,
        "reason": verdict.reason,
        "message": verdict.message,
        "override": verdict.override,
        "policy": verdict.policy,
        "request": short(csr.name),
        "uid": str(metadata(found).get("uid") or ""),
        "resourceVersion": str(metadata(found).get("resourceVersion") or ""),
        "signer": short(csr.signer),
        "requester": short(csr.username),
        "credential": short(",".join(csr.extra.get(_CREDENTIAL) or ())),
        **_contents(csr),
    }
    return json.dumps({name: value for name, value in entry.items() if value}, ensure_ascii=True)


def key_digest(csr: SigningRequest) -> str:
    """Return the SHA-256 of the public key of a request in hexadecimal, '' for a request that cannot be read."""
    try:
        return hashlib.sha256(csr.details().public_key).hexdigest()
    except CertificateError:
        return ""


def _contents(csr: SigningRequest) -> dict[str, object]:
    try:
        names = csr.details().names
    except CertificateError:
        return {}
    sans = [*names.dns, *names.addresses, *names.emails, *names.uris]
    return {"key": key_digest(csr), "names": [short(one) for one in sans[:_MOST_NAMES]]}
