"""Explain the state of a node's client certificate request: who approves it, who denied it, and what to do about it.

The queries use the node's own credentials, which have few permissions: create, get, list and watch requests
(ClusterRole system:node-bootstrapper, which kubeadm binds to bootstrap tokens), and query their own identity and
permissions (system:basic-user, which everyone has).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from kubewright.base import untyped
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, CertificateError, Forbidden, NotFound, Unauthorized
from kubewright.base.messages import one_line
from kubewright.base.records import dataclass
from kubewright.kube import core
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.pki.requests import csr, request_details
from kubewright.tokens.secrets import parse_moment


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A ClusterRole that a machine needs, and the ClusterRoleBinding with which kubeadm binds it to a group."""

    role: str
    name: str
    group: str
    subresource: str = ""
    """The subresource of certificatesigningrequests that the role allows to create."""

    def lacks(self, asker: Asker) -> str:
        """Say that a requester is not bound."""
        return (
            f"{asker} is not bound to ClusterRole {self.role}; kubeadm binds group {self.group} to it with ClusterRoleBinding {self.name}"
        )


_SIGNING: Final = "system:certificates.k8s.io:certificatesigningrequests"
_TOKENS: Final = "system:bootstrappers:kubeadm:default-node-token"
ASKING: Final = Binding(role="system:node-bootstrapper", name="kubeadm:kubelet-bootstrap", group=_TOKENS)
FIRST: Final = Binding(role=f"{_SIGNING}:nodeclient", name="kubeadm:node-autoapprove-bootstrap", group=_TOKENS, subresource="nodeclient")
RENEWED: Final = Binding(
    role=f"{_SIGNING}:selfnodeclient",
    name="kubeadm:node-autoapprove-certificate-rotation",
    group=csr.NODES,
    subresource="selfnodeclient",
)
"""The roles that a machine needs to make requests, and to have its first and later ones approved.

Source: Kubernetes v1.36.3, pkg/controller/certificates/approver.
"""
BY_POLICY: Final = Binding(
    role="kubewright:node-client-by-policy", name="kubewright:node-client-by-policy", group=_TOKENS, subresource="nodeclientbypolicy"
)
"""The role that machines have in a cluster in which `servingapproving` runs: it may decide about their requests by its policy."""
_REFUSALS: Final = (
    ("Denied", "certificate request {name} was denied", "approval"),
    ("Failed", "the signer could not sign certificate request {name}", "status"),
)
"""Types of conditions, their meaning, and the subresource through which they are written."""
_EVERYBODY: Final = "system:authenticated"
_LISTED_AGAIN: Final = (5.0, 60.0)
"""Seconds until all requests are listed again, at first and at most: there may be thousands of them, and as many waiting machines."""
_BINDS: Final = "create the binding again (`kubewright init phase bootstrap-token` on a control plane), then run the same command again"


@dataclass(frozen=True, kw_only=True)
class RequestStatus:
    """The known state of a node's request. `text` is a sentence; `refused` means that no certificate will be issued."""

    text: str
    remedy: str
    refused: bool = False


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A decision against a request. `verdict` is Denied or Failed, `reason` and `words` are the reason and the full text of its author."""

    verdict: str
    reason: str
    what: str
    words: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Asker:
    """The requester of certificates as the API server knows them; empty if unknown."""

    name: str = ""
    groups: tuple[str, ...] = ()

    def __str__(self) -> str:
        own = [group for group in self.groups if group != _EVERYBODY]
        return f"{self.name} ({', '.join(own)})" if own else self.name or "this machine"


def asker_of(request: Mapping[str, Any]) -> Asker:
    """Return the requester of a request."""
    spec = untyped.mapping(request.get("spec"))
    return Asker(name=str(spec.get("username") or ""), groups=untyped.texts(spec.get("groups")))


def approver_of(request: Mapping[str, Any]) -> Binding | None:
    """Return the binding with which kube-controller-manager approves a requester's request; None for requests that it never approves."""
    if untyped.mapping(request.get("spec")).get("signerName") != csr.CLIENT_SIGNER:
        return None
    return RENEWED if asker_of(request).name.startswith(csr.node_user("")) else FIRST


def rights_review(binding: Binding) -> Object:
    """Return the review that asks whether the requester has the permission of a binding."""
    attributes = {"group": CERTIFICATE_SIGNING_REQUEST.group, "resource": CERTIFICATE_SIGNING_REQUEST.plural, "verb": "create"}
    more = {"subresource": binding.subresource} if binding.subresource else {}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, **more}},
    }


def allowed(review: Mapping[str, Any]) -> bool:
    """Return the answer to such a review."""
    return untyped.mapping(review.get("status")).get("allowed") is True


def is_pending(request: Mapping[str, Any]) -> bool:
    """Whether a request is undecided."""
    return not _conditions(request)


def status_of(request: Mapping[str, Any], *, approvable: bool | None = None, by_policy: bool = False) -> RequestStatus:
    """Describe the state of a request.

    `approvable`: whether kube-controller-manager may approve it, None if that is not known. `by_policy`: whether the
    cluster has an approver that decides by a policy.
    """
    name, _ = core.identity_of(request)
    if (refused := refusal(request)) is not None:
        text = f"{refused.what}: {refused.words}" if refused.words else refused.what
        return RequestStatus(text=text, remedy=f"{refused.remedy}, then run the same command again", refused=True)
    if untyped.mapping(request.get("status")).get("certificate"):
        return RequestStatus(
            text=f"certificate request {name} is signed, and the kubelet has not stored the certificate yet",
            remedy="see what the kubelet reports: `journalctl -u kubelet`",
        )
    if any(row.get("type") == "Approved" for row in _conditions(request)):
        return RequestStatus(
            text=f"certificate request {name} is Approved{_by(request, 'approval')}, but not signed",
            remedy="check that kube-controller-manager runs and has the CA's key (`kubectl -n kube-system get pods -l component=kube-controller-manager`)",
        )
    return _pending(name, request, approvable, by_policy=by_policy)


def _pending(name: str, request: Mapping[str, Any], approvable: bool | None, *, by_policy: bool) -> RequestStatus:
    binding = approver_of(request)
    approve = f"approve it on a control plane (`kubectl certificate approve {name}`), then run the same command again"
    if approvable is None or binding is None:
        return RequestStatus(text=f"certificate request {name} is Pending: it has not been approved", remedy=approve)
    if approvable:
        return RequestStatus(
            text=f"certificate request {name} is Pending: kube-controller-manager may approve it and has not",
            remedy=f"check that kube-controller-manager runs, or {approve}",
        )
    if by_policy:
        return RequestStatus(
            text=f"certificate request {name} is Pending: the policy of this cluster does not allow it yet, or a person has to approve it",
            remedy=f"see on a control plane what it waits for (`kubewright csr explain {name}`); once it is approved, the join continues",
        )
    return RequestStatus(
        text=f"certificate request {name} is Pending, and nobody approves it: {binding.lacks(asker_of(request))}",
        remedy=approve,
    )


def _conditions(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return untyped.mappings(untyped.mapping(request.get("status")).get("conditions"))


def refusal(request: Mapping[str, Any]) -> Refusal | None:
    """Return who refused a request and why, None if no one has."""
    name, _ = core.identity_of(request)
    conditions = {str(row.get("type")): row for row in _conditions(request)}
    for verdict, what, subresource in _REFUSALS:
        if verdict in conditions:
            parts = [one_line(str(part)) for key in ("reason", "message") if (part := conditions[verdict].get(key))]
            return Refusal(
                verdict=verdict,
                reason=str(conditions[verdict].get("reason") or ""),
                what=f"{what.format(name=name)}{_by(request, subresource)}",
                words=": ".join(parts),
                remedy=f"ask an approver of this cluster (`kubectl describe csr {name}`)",
            )
    return None


def _by(request: Mapping[str, Any], subresource: str) -> str:
    """Name the program that wrote a decision, '' if that is not known.

    The API server records it only for requests whose names it has generated, such as a kubelet's; for others it
    keeps no managed fields.
    """
    rows = untyped.mappings(core.metadata(request).get("managedFields"))
    made = sorted((str(row.get("time") or ""), str(row.get("manager") or "")) for row in rows if row.get("subresource") == subresource)
    return f" by {one_line(made[-1][1])}" if made and made[-1][1] else ""


def newest(requests: Iterable[Object], node_name: str, *, asker: str = "", since: datetime | None = None) -> Object | None:
    """Return the most informative request of a node: a refused one, otherwise the newest; None if it has made none.

    `asker` is the user who must have made it, if known: anyone with a token may use this node's name. `since`
    excludes requests of an earlier run.
    """

    def is_meant(one: Object) -> bool:
        is_by_asker = not asker or asker_of(one).name == asker
        return is_by_asker and (since is None or _made(one) >= since) and _node_of(one) == csr.node_user(node_name)

    own = [one for one in requests if is_meant(one)]
    refused = [one for one in own if status_of(one).refused]
    return max(refused or own, key=lambda one: (_made(one), core.identity_of(one)[0]), default=None)


def _made(request: Object) -> datetime:
    found = parse_moment(str(core.metadata(request).get("creationTimestamp") or ""))
    return found if found is not None else datetime.min.replace(tzinfo=UTC)


def _node_of(request: Object) -> str:
    try:
        return request_details.read(base64.b64decode(request["spec"]["request"], validate=True)).common_name
    except (CertificateError, ValueError, LookupError, TypeError):
        return ""


class NodeRequests:
    """Looks up a node's request repeatedly while a command waits for it. Use it from one thread at a time."""

    def __init__(self, api: KubeAPI, node_name: str, *, clock: Clock) -> None:
        self._api = api
        self._node_name = node_name
        self._clock = clock
        self._asker: Asker | None = None
        self._name = ""
        self._pause, self._longest = _LISTED_AGAIN
        self._list_at = clock.monotonic()

    def look(self, *, since: datetime | None = None, thoroughly: bool = False) -> RequestStatus | None:
        """Describe the state of the request; None if there is none or it cannot be read. Never raises.

        Between lists of all requests only the one that was found is read, unless `thoroughly`.
        """
        try:
            request = self._find(since, thoroughly=thoroughly)
        except Unauthorized:
            return RequestStatus(
                text="the API server no longer accepts the token of this machine",
                remedy="create another one on a control plane (`kubewright token create --print-join-command`), and join with it",
            )
        except Forbidden:
            return self._without_rights()
        except APIError:
            return None
        if request is None:
            return None
        if not is_pending(request):
            return status_of(request)
        approvable = self._may(FIRST)
        return status_of(request, approvable=approvable, by_policy=approvable is False and self._may(BY_POLICY) is True)

    def _find(self, since: datetime | None, *, thoroughly: bool) -> Object | None:
        now = self._clock.monotonic()
        if self._name and not thoroughly and now < self._list_at:
            with suppress(NotFound):
                return self._api.get(CERTIFICATE_SIGNING_REQUEST, self._name)
        self._list_at, self._pause = now + self._pause, min(self._pause * 2, self._longest)
        found = self._api.list(CERTIFICATE_SIGNING_REQUEST, field_selector=f"spec.signerName={csr.CLIENT_SIGNER}")
        request = newest(found, self._node_name, asker=self._who_asks().name, since=since)
        self._name = core.identity_of(request)[0] if request is not None else ""
        return request

    def _who_asks(self) -> Asker:
        if self._asker is None:
            try:
                found = self._api.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
            except Forbidden:
                found = {}
            user = untyped.mapping(found.get("status")).get("userInfo")
            self._asker = asker_of({"spec": user})
        return self._asker

    def _without_rights(self) -> RequestStatus | None:
        """Say that the machine may not request a certificate, unless it may, and only lacks the permission to read requests."""
        try:
            asker = self._who_asks()
        except APIError:
            asker = Asker()
        if self._may(ASKING) is not False:
            return None
        return RequestStatus(text=f"no certificate can be requested: {ASKING.lacks(asker)}", remedy=_BINDS)

    def _may(self, binding: Binding) -> bool | None:
        try:
            return allowed(self._api.create(rights_review(binding)))
        except APIError:
            return None
