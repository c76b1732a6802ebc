"""`csr approve` and `csr deny`: decisions of a person, limited by the rules of the cluster and recorded in a journal."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import CertificateError, CheckFailed, Conflict, UsageError
from kubewright.base.messages import short
from kubewright.base.records import dataclass
from kubewright.cli.handlers import cluster_access
from kubewright.cli.handlers.controllers import journals, reviewing
from kubewright.cli.handlers.controllers.reviewing import Reviewer
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import table, write_result
from kubewright.controllers import requests
from kubewright.controllers.requests import APPROVED, DENIED, SigningRequest
from kubewright.controllers.serving import deciding, journal
from kubewright.controllers.serving.evidence import node_of
from kubewright.controllers.serving.journal import Verdict
from kubewright.host.filesystem.files import Files
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.local.paths import state_directory

DENIED_BY_HAND: Final = "DeniedByHand"
OVERRIDE: Final = "PolicyOverridden"
_JOURNAL: Final = "decisions.jsonl"
_COLUMNS: Final = (("name", "NAME"), ("requester", "REQUESTER"), ("outcome", "OUTCOME"), ("reason", "BECAUSE"))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result for one request."""

    csr: SigningRequest
    outcome: str
    reason: str = ""
    failed: bool = False

    def as_map(self) -> dict[str, str]:
        """Return the machine-readable form."""
        row = {"name": self.csr.name, "signer": self.csr.signer, "requester": self.csr.username}
        return row | {"outcome": self.outcome, "reason": self.reason}


def approve(parsed: Parsed) -> int:
    """Approve requests that a rule allows, and with --override others as well."""
    return _Decisions(parsed, APPROVED).run()


def deny(parsed: Parsed) -> int:
    """Deny requests."""
    return _Decisions(parsed, DENIED).run()


class _Decisions:
    """One run of a command."""

    def __init__(self, parsed: Parsed, kind: str) -> None:
        self._parsed = parsed
        self._kind = kind
        self._override = parsed.text("override") if kind == APPROVED else ""
        self._api: KubeAPI = cluster_access.client(cluster_access.of_user(parsed.text("kubeconfig")))
        self._now: datetime = SystemClock().now()
        self._reviewer = Reviewer(parsed, self._api, now=self._now)
        place = parsed.text("journal") or str(state_directory().parent / _JOURNAL)
        self._journal = journals.appender(place, files=Files())

    def run(self) -> int:
        """Decide about each request, and print the results. Raises CheckFailed if some requests were left undecided."""
        if "override" in self._parsed.given and not self._override.strip():
            raise UsageError("--override needs a reason", remedy="say why the policy does not apply; the journal keeps it")
        self._journal("")  # an unwritable journal must be noticed before the first decision
        done = [self._decide(found) for found in self._chosen()]
        form = self._parsed.text("output")
        if form != "text":
            write_result([one.as_map() for one in done], form=form)
        elif not done:
            sys.stderr.write("no pending request matches\n")
        else:
            rows = [{**one.as_map(), "name": short(one.csr.name), "requester": short(one.csr.username)} for one in done]
            sys.stdout.write(table(rows, columns=_COLUMNS))
        failed = [one for one in done if one.failed]
        if failed:
            verb = "approved" if self._kind == APPROVED else "denied"
            remedy = "`csr explain NAME` shows every check; --override REASON approves against the policy, and the journal keeps the reason"
            raise CheckFailed(f"{len(failed)} of {len(done)} requests are not {verb}", remedy=remedy if self._kind == APPROVED else "")
        return 0

    def _chosen(self) -> Iterator[Object]:
        names, pattern = self._parsed.strings("name"), self._parsed.text("all-matching")
        if not names and not pattern:
            raise UsageError("no request is given: pass their names, or use --all-matching", remedy="`csr list` shows them")
        found = {name: self._api.get(CERTIFICATE_SIGNING_REQUEST, name) for name in dict.fromkeys(names)}
        if pattern:
            for obj in self._api.list(CERTIFICATE_SIGNING_REQUEST):
                csr = requests.read(obj)
                if not csr.decided and not csr.certificate and fnmatch.fnmatchcase(_node(csr), pattern):
                    found.setdefault(csr.name, obj)
        yield from found.values()

    def _decide(self, found: Object) -> Outcome:
        try:
            return self._decide_once(found)
        except Conflict:  # someone else has changed it: decide about its current state
            return self._decide_once(self._api.get(CERTIFICATE_SIGNING_REQUEST, requests.read(found).name))

    def _decide_once(self, found: Object) -> Outcome:
        csr = requests.read(found)
        if csr.decided:
            return Outcome(csr=csr, outcome="unchanged", reason=f"it is {csr.state}", failed=not csr.has(self._kind))
        refusal = self._reviewer.refusal(csr) if self._kind == APPROVED else ""
        if refusal and not self._override:
            return Outcome(csr=csr, outcome="refused", reason=refusal, failed=True)
        verdict = self._verdict(refusal)
        message = verdict.override or verdict.message
        condition = {"type": self._kind, "status": "True", "reason": verdict.reason, "message": message}
        self._api.update(requests.with_condition(found, condition), subresource="approval")
        self._journal(journal.line(csr, found, verdict, now=self._now))
        return Outcome(csr=csr, outcome=self._kind.lower(), reason=refusal and f"overridden: {refusal}")

    def _verdict(self, refusal: str) -> Verdict:
        by = reviewing.person(self._api)
        if self._kind == DENIED:
            return Verdict(outcome="deny", by=by, reason=DENIED_BY_HAND, message=self._parsed.text("message") or "denied by hand")
        policy = self._reviewer.policy.version if self._reviewer.policy is not None else ""
        if refusal:
            return Verdict(outcome="approve", by=by, reason=OVERRIDE, message=refusal, policy=policy, override=self._override)
        return Verdict(
            outcome="approve", by=by, reason=deciding.REASON, message="allowed by the rules, and approved by hand", policy=policy
        )


def _node(csr: SigningRequest) -> str:
    """Return the node that a request is about: its requester, or for a first certificate its subject."""
    try:
        return node_of(csr.username) or node_of(csr.details().common_name)
    except CertificateError:
        return node_of(csr.username)
