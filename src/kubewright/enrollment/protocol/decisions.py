"""The hub's decision about one request: from the observation to one of a few outcomes. Pure.

The order is that of cost: a request that has ended is never decrypted again, and names are checked before decryption.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats, node_join_requests
from kubewright.apis.join_records import JoinRecord, tunnel_key_name
from kubewright.apis.node_join_requests import Condition
from kubewright.base import untyped
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field
from kubewright.enrollment.protocol import requests
from kubewright.enrollment.protocol.fields import MalformedField
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.kube import core
from kubewright.pki import node_names
from kubewright.pki.node_names import NamePolicy
from kubewright.tokens.secrets import parse_moment

MALFORMED: Final = "Malformed"
NAME_TAKEN: Final = "NameTaken"
SAN_NOT_ALLOWED: Final = "SanNotAllowed"
ENDPOINT_NOT_ALLOWED: Final = "EndpointNotAllowed"
REPLAYED: Final = "Replayed"
TOO_LARGE: Final = "TooLarge"
TOO_MANY: Final = "TooManyRequests"
KEY_TAKEN: Final = "KeyTaken"
NO_ADDRESS: Final = "NoAddress"
VPN_UNAVAILABLE: Final = "VPNUnavailable"
"""The reasons of a request that waits until the VPN has an address for it and works."""
AWAITING_APPROVAL: Final = "AwaitingApproval"
APPROVAL_DENIED: Final = "ApprovalDenied"
EXPIRED: Final = "Expired"
ISSUED: Final = "Issued"
_LONGEST_ENDPOINT: Final = 300
_DIGITS: Final = 32
_ENDED: Final = frozenset({"True", "False"})
_MOST_METADATA: Final = 32768
"""The limit of characters in a request's metadata: the kind has none, and the API server accepts a megabyte and a half."""


class Approval(enum.StrEnum):
    """Who decides about a request that violates no rule."""

    AUTOMATIC = "automatic"
    HUMAN = "human"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A cluster's requirements for joining nodes.

    `kept` is how long a request stays after it ended, `waits` how long it may wait for approval. `crowded`: there are
    so many requests that refused ones are deleted at once, and no more wait for approval.
    """

    names: NamePolicy = field(default_factory=NamePolicy)
    approval: Approval = Approval.AUTOMATIC
    kept: timedelta = timedelta(hours=1)
    waits: timedelta = timedelta(hours=24)
    crowded: bool = False


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The observation of one request object."""

    name: str
    uid: str
    created: datetime | None
    condition: Condition | None
    digest: str
    """Identifies the encrypted key, and so the object and its copies."""
    contents: JoinRequest | MalformedField | None = None
    """The decrypted request, or what is wrong with it; None before it has been decrypted."""
    first: str = ""
    """The uid of the first request with the same encrypted key; '' if there is none."""
    approved: bool | None = None
    """An administrator's decision about this object; None if there is none."""
    registered: bool = False
    """Whether a Node of this name exists."""
    deleting: bool = False
    """Whether the object was deleted, and only finalizers keep it."""
    burden: int = 0
    """The characters of its metadata that others than the API server have written."""
    size: int = 0
    """Its size in bytes if it is too large, otherwise 0."""
    contents_digest: str = ""
    """Identifies the content of its spec; '' once it has an answer."""

    @property
    def subject(self) -> str:
        """The subject of an administrator's decision: this object in its current form.

        Anyone with write access to the tenant could replace the request.
        """
        return f"{self.uid}.{self.contents_digest[:_DIGITS]}"

    @property
    def ended(self) -> bool:
        """Whether it has been answered, or ends without an answer: nothing more is done about it."""
        return self.deleting or (self.condition is not None and self.condition.status in _ENDED)


@dataclass(frozen=True, kw_only=True)
class Open:
    """It must be decrypted before a decision."""


@dataclass(frozen=True, kw_only=True)
class Issue:
    """Issue what the node requested."""

    request: JoinRequest


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Check again after this many seconds. With a reason, the object shows what it waits for."""

    after: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Refuse:
    """Show the reason of the refusal in the object."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Forget:
    """Delete the object."""


Outcome = Open | Issue | Wait | Refuse | Forget


def look(request: Mapping[str, Any]) -> Seen:
    """Return the observation of an object without decrypting anything."""
    metadata, condition = core.metadata(request), node_join_requests.condition_of(request)
    asked = condition is None or condition.status not in _ENDED
    return Seen(
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        created=parse_moment(str(metadata.get("creationTimestamp") or "")),
        condition=condition,
        digest=requests.digest(request),
        deleting=bool(metadata.get("deletionTimestamp")),
        burden=_burden(metadata),
        size=requests.size_of(request),
        contents_digest=requests.contents_digest(request) if asked else "",
    )


def _burden(metadata: Mapping[str, Any]) -> int:
    maps = [untyped.mapping(metadata.get(name)) for name in ("labels", "annotations")]
    rows = [row for name in ("finalizers", "ownerReferences") for row in untyped.items(metadata.get(name))]
    return sum(len(key) + len(str(value)) for one in maps for key, value in one.items()) + sum(len(str(row)) for row in rows)


def decide(seen: Seen, record: JoinRecord | None, policy: Policy, now: datetime) -> Outcome:
    """Return what to do with a request. `record` is that of the node's name."""
    if seen.deleting:
        return Forget()
    if seen.condition is not None and seen.ended:
        crowded = policy.crowded and seen.condition.status == "False"
        return Forget() if crowded else _after_the_end(seen.condition, seen, policy.kept, now)
    if seen.size:
        return Refuse(reason=TOO_LARGE, message=f"it has {seen.size} bytes, more than {requests.MOST_SIZE}")
    if seen.burden > _MOST_METADATA:
        return Refuse(reason=TOO_LARGE, message=f"it has {seen.burden} characters of metadata, more than {_MOST_METADATA}")
    refused = node_names.node_name_refused(seen.name, policy.names)
    if refused is not None:
        return Refuse(reason=refused.rule, message=refused.message)
    if seen.contents is None:
        return Open()
    if isinstance(seen.contents, MalformedField):
        return Refuse(reason=MALFORMED, message=str(seen.contents))
    return _refusal(seen, seen.contents, record, policy) or _approval(seen, policy, now) or Issue(request=seen.contents)


def _after_the_end(condition: Condition, seen: Seen, kept: timedelta, now: datetime) -> Wait | Forget:
    ended = parse_moment(condition.since) or seen.created or now
    left = (ended + kept - now).total_seconds()
    return Wait(after=left) if left > 0 else Forget()


def _refusal(seen: Seen, request: JoinRequest, record: JoinRecord | None, policy: Policy) -> Refuse | None:
    if seen.first and seen.first != seen.uid:
        return Refuse(reason=REPLAYED, message="the request is a copy of an earlier one")
    problem = endpoint_problem(request.endpoint)
    if problem:
        return Refuse(reason=ENDPOINT_NOT_ALLOWED, message=f"apiServerEndpoint {problem}")
    names = node_names.names_refused(request.sans, seen.name, policy.names, loopback=True)
    if names is not None:
        return Refuse(reason=SAN_NOT_ALLOWED, message=f"{names.rule}: {names.message}")
    if request.tunnel_key and policy.names.foreign.get(tunnel_key_name(request.tunnel_key), seen.name) != seen.name:
        return Refuse(reason=KEY_TAKEN, message="vpnPublicKey is another node's")
    if record is not None and record.active and record.key != request.key.fingerprint:
        return Refuse(
            reason=NAME_TAKEN,
            message=f"another machine has joined as {quoted(seen.name)}: `kubewright node leave` there, or"
            f" `kubewright hub requests forget {record.cluster} {seen.name}` on the hub, frees the name",
        )
    if seen.registered and (record is None or not record.active):
        return Refuse(
            reason=NAME_TAKEN,
            message=f"there is a Node {quoted(seen.name)} that did not join through this hub; if its machine no longer exists, delete it:"
            f" kubectl delete node {seen.name}",
        )
    return None


def endpoint_problem(endpoint: str) -> str:
    """Return why an endpoint is not allowed in a kubeconfig.

    Node and hub use the same check. '' stands for the cluster's own.
    """
    if not endpoint:
        return ""
    if len(endpoint) > _LONGEST_ENDPOINT or not endpoint.isprintable():
        return "is not a URL"
    try:
        formats.url_scheme(endpoint)
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme != "https" or port == 0 or parts.username is not None or parts.query or parts.fragment or parts.path not in {"", "/"}:
        return "is not https://HOST:PORT"
    return "" if formats.address(host) is not None or not formats.subdomain_problems(host) else "has no host"


def _approval(seen: Seen, policy: Policy, now: datetime) -> Wait | Refuse | None:
    if seen.approved is False:
        return Refuse(reason=APPROVAL_DENIED, message="an administrator has refused it")
    if policy.approval is Approval.AUTOMATIC or seen.approved:
        return None
    left = ((seen.created or now) + policy.waits - now).total_seconds()
    if left <= 0:
        return Refuse(reason=EXPIRED, message="it was not approved in time")
    if policy.crowded and seen.condition is None:
        return Refuse(reason=TOO_MANY, message="too many requests are waiting; try again later")
    return Wait(after=left, reason=AWAITING_APPROVAL, message="it waits for approval: kubewright hub requests approve")
