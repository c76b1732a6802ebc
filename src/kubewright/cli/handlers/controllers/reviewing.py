"""The cluster's policy for serving certificates, and the evidence about each request, for the `csr` commands."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import TypeVar

from kubewright.apis import node_approval
from kubewright.apis.node_approval import STRICT, NodeApprovalPolicy
from kubewright.base.errors import APIError, DocumentError, KubewrightError
from kubewright.base.records import replace
from kubewright.cli.handlers.controllers import evidence_tools
from kubewright.cli.parsing.inputs import absolute
from kubewright.cli.parsing.parser import Parsed
from kubewright.controllers import approving
from kubewright.controllers.approving import Approve, Ask
from kubewright.controllers.requests import CLIENT_KUBELET, KUBELET_SERVING, SigningRequest
from kubewright.controllers.serving import clients, deciding, locations, used_tokens
from kubewright.controllers.serving.client_history import ClientHistory
from kubewright.controllers.serving.clients import ClientEvidence
from kubewright.controllers.serving.evidence import Evidence
from kubewright.controllers.serving.gathering import API_SERVERS, Gatherer
from kubewright.controllers.serving.locations import PolicyLocation
from kubewright.controllers.serving.sources.fetching import Fetcher
from kubewright.host.filesystem.files import Files
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import identity_of
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CONFIG_MAP, ENDPOINTS, NODE
from kubewright.manifests import node_policy, pods

T = TypeVar("T")


def policy_location(parsed: Parsed) -> PolicyLocation | None:
    """Return the location of the NodeApprovalPolicy in the flags, None without one. Raises UsageError."""
    found = locations.location(parsed.text("node-policy"))
    return PurePosixPath(absolute(str(found))) if isinstance(found, PurePosixPath) else found


def policy_of(parsed: Parsed, api: KubeAPI) -> NodeApprovalPolicy | None:
    """Return the policy in the flags, otherwise the cluster's own; None if it has none, or does not let this user read it.

    Raises DocumentError for a named policy that does not exist, ValidationError for an invalid one.
    """
    found = policy_location(parsed)
    if isinstance(found, PurePosixPath):
        content = Files().read(found)
        if content is None:
            raise DocumentError(f"{found} does not exist", remedy="check --node-policy")
        return node_approval.read(content, source=str(found))
    source = found or locations.DEFAULT
    try:
        obj = api.get(CONFIG_MAP, source.name, source.namespace)
    except APIError:
        if found is not None:
            raise
        return None
    return node_approval.read(locations.content_of(obj, source), source=str(source))


def known(api: KubeAPI) -> Gatherer:
    """Read the objects that the approver of serving certificates watches."""
    gatherer = Gatherer()
    for resource, reader in gatherer.readers.items():
        namespace = API_SERVERS[0] if resource is ENDPOINTS else None
        for obj in api.list(resource, namespace):
            if resource is not ENDPOINTS or identity_of(obj)[0] == API_SERVERS[1]:
                reader(WatchEvent(EventType.ADDED, obj))
    return gatherer


def answers(csr: SigningRequest, api: KubeAPI | None) -> dict[str, bool]:
    """Check the requester's permissions in the cluster, as the approver does.

    Without a cluster, or permission to check, they are unknown.
    """
    found: dict[str, bool] = {}
    while api is not None and isinstance(decision := approving.decide(csr, found), Ask):
        try:
            review = api.create(approving.review(csr, decision.subresource))
        except APIError:
            break
        found[decision.subresource] = bool((review.get("status") or {}).get("allowed"))
    return found


class Reviewer:
    """Determines which requests the rules of a cluster allow. Everything is read when it is first used."""

    def __init__(self, parsed: Parsed, api: KubeAPI, *, now: datetime) -> None:
        self._parsed = parsed
        self._api = api
        self._now = now

    @functools.cached_property
    def policy(self) -> NodeApprovalPolicy | None:
        """The policy for serving certificates. Raises the errors of `policy_of`."""
        return policy_of(self._parsed, self._api)

    @functools.cached_property
    def _known(self) -> Gatherer:
        return known(self._api)

    def evidence(self, csr: SigningRequest, policy: NodeApprovalPolicy) -> Evidence:
        """Return the evidence about a request for a serving certificate.

        The sources are asked if the cluster's own evidence does not decide. Raises the error of a source that cannot
        be opened.
        """
        evidence = self._known.gather(csr, policy, now=self._now)
        if not isinstance(deciding.decide(csr, evidence, policy, now=self._now), deciding.Ask):
            return evidence

        return evidence.completed(self._ask(policy, lambda sources: sources.fetch(self._known.question(csr))))

    def _ask(self, policy: NodeApprovalPolicy, question: Callable[[Fetcher], Awaitable[T]]) -> T:
        """Open the sources of a policy for one question."""
        from kubewright.http import loop

        async def answered() -> T:
            sources = Fetcher(policy, evidence_tools.tools())
            try:
                return await question(sources)
            finally:
                await sources.close()

        return loop.run(answered)

    def waits_for(self, csr: SigningRequest) -> str:
        """Return why a pending request does not satisfy the policy.

        It is '' for requests that no policy covers.
        """
        if csr.decided or csr.certificate or self.policy is None:
            return ""
        try:
            if csr.signer == CLIENT_KUBELET and self.policy.clients == STRICT:
                return self._client(csr, self.policy) or clients.AWAITING
            return self._serving(csr, self.policy) if csr.signer == KUBELET_SERVING else ""
        except KubewrightError as error:
            return f"cannot be checked here: {error.what}"

    def refusal(self, csr: SigningRequest) -> str:
        """Return why no rule allows a request, '' if one does."""
        if csr.signer == KUBELET_SERVING:
            if self.policy is None:
                return "the cluster has no policy for serving certificates"
            return self._serving(csr, self.policy)
        if csr.signer != CLIENT_KUBELET:
            return "there is no rule for its signer"
        if self.policy is not None and self.policy.clients == STRICT:
            return self._client(csr, self.policy)
        decision = approving.decide(csr, answers(csr, self._api))
        if isinstance(decision, Approve):
            return ""
        return "its requester's permissions cannot be checked" if isinstance(decision, Ask) else decision.reason

    @functools.cached_property
    def _client_history(self) -> ClientHistory:
        found = ClientHistory(self._known.history)
        readers = {NODE: found.node_changed, CERTIFICATE_SIGNING_REQUEST: found.changed}
        for resource, reader in readers.items():
            for obj in self._api.list(resource):
                reader(WatchEvent(EventType.ADDED, obj))
        with suppress(APIError):  # hidden from this user, or never created
            found.used(used_tokens.read(self._api.get(CONFIG_MAP, node_policy.USED_TOKENS, pods.NAMESPACE)))
        return found

    def client_evidence(self, csr: SigningRequest) -> ClientEvidence:
        """Return the evidence about a request for a client certificate. Raises the error of join records that cannot be opened."""
        history, policy = self._client_history, self.policy
        found = history.evidence(csr, now=self._now)
        if policy is None or not clients.depends_on_records(clients.decide(csr, found, policy, now=self._now)):
            return found
        return replace(found, records=self._ask(policy, lambda sources: sources.records(history.question(csr))))

    def _client(self, csr: SigningRequest, policy: NodeApprovalPolicy) -> str:
        """Return why a request for a client certificate is not allowed; '' for one that only has to be approved by a person."""
        match clients.decide(csr, self.client_evidence(csr), policy, now=self._now):
            case deciding.Deny(reason=reason, message=message):
                return f"{reason}: {message}"
            case deciding.Wait(check=check, reason=reason, message=message) if check != clients.BY_PERSON:
                return f"{reason}: {message}"
        return ""

    def _serving(self, csr: SigningRequest, policy: NodeApprovalPolicy) -> str:
        match deciding.decide(csr, self.evidence(csr, policy), policy, now=self._now):
            case deciding.Deny(reason=reason, message=message) | deciding.Wait(reason=reason, message=message):
                return f"{reason}: {message}"
        return ""


def person(api: KubeAPI) -> str:
    """Return the user as which the API server authenticates the caller."""
    review: Mapping[str, object] = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        status = api.create(dict(review)).get("status") or {}
    except APIError:
        return "unknown"
    return str((status.get("userInfo") or {}).get("username") or "unknown")
