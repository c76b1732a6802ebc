"""Read the API's answers: objects, Status errors, pages, watch lines; and decide whether to retry a call.

Reading is pure. Any answer leads to a value or to an error of our tree. kubeadm retries every API error each 500 ms
for `timeouts.kubernetesAPICall`; we stop at once for errors that waiting cannot fix, and begin with shorter pauses.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kubewright.base import errors
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Invalid, StatusError
from kubewright.base.masking import mask
from kubewright.base.wait import Backoff, Failed, retry
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import MIB, Response
from kubewright.kube.core import Call, Object

LINE_LIMIT: Final = 16 * MIB
"""The longest watch line, in bytes.

Etcd limits objects to 1.5 MiB by default; JSON and managed fields make them longer.
"""
_EXCERPT: Final = 300
"""How many characters of a body that is not a Status object an error shows."""

_decoder: Final = msgspec.json.Decoder(dict[str, Any])

_BY_REASON: Final[dict[str, type[errors.StatusError]]] = {
    "AlreadyExists": errors.AlreadyExists,
    "Conflict": errors.Conflict,
    "Expired": errors.Gone,
    "Forbidden": errors.Forbidden,
    "Gone": errors.Gone,
    "Invalid": errors.Invalid,
    "NotFound": errors.NotFound,
    "TooManyRequests": errors.TooManyRequests,
    "Unauthorized": errors.Unauthorized,
}
_BY_CODE: Final[dict[int, type[errors.StatusError]]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}
_REMEDIES: Final[dict[type[errors.StatusError], str]] = {
    errors.Unauthorized: "check that the certificate or token is of this cluster and has not expired",
    errors.Forbidden: "use an identity that may do this, or grant this one the permission",
    errors.Conflict: "it was changed in the meantime: try again",
    errors.TooManyRequests: "the server asks to wait: try again later",
    errors.ServerError: "look at the API server's log",
}

T = TypeVar("T")

API_CALL_TIMEOUT: Final = 60.0
"""kubeadm's default of timeouts.kubernetesAPICall, in seconds."""
PAUSES: Final = Backoff(first=0.05, factor=1.5, limit=0.5)

_FINAL_CODES: Final = frozenset({400, 405, 406, 413, 415, 422})
_FINAL_REASONS: Final = frozenset({Reason.UNTRUSTED, Reason.REDIRECTED, Reason.CLOSED})


class EventType(enum.Enum):
    """The type of a watch event.

    ERROR never reaches a caller: it is raised. SYNCED is sent only by informers: all existing objects have been
    delivered.
    """

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    SYNCED = "SYNCED"


_EVENT_TYPES: Final = {kind.value: kind for kind in EventType if kind is not EventType.SYNCED}


class WatchEvent(NamedTuple):
    """One change of an object. A BOOKMARK's object contains nothing but its resourceVersion."""

    type: EventType
    object: Object

    @property
    def resource_version(self) -> str:
        """The version to continue from."""
        return str((self.object.get("metadata") or {}).get("resourceVersion") or "")


def read_object(call: Call, answer: Response, *, server: str) -> Object:
    """Return the object of a successful answer, or the page of a list. Raises StatusError for a refusal, NoAnswer for an unusable answer."""
    check(call, answer, server=server)
    found = _decode(call, answer.body, server=server)
    return page(call, found, server=server) if call.verb == "list" else found


def check(call: Call, answer: Response, *, server: str) -> None:
    """Raise an error for every status code except 2xx."""
    if 200 <= answer.status < 300:
        return
    if answer.status < 400:
        place = answer.headers.get("location", "")
        raise _nonsense(call, server, Reason.REDIRECTED, f"to {_printable(place)}" if place else f"status code {answer.status}")
    raise _status_error(call, answer.status, _status_of(answer.body), headers=answer.headers, text=answer.body)


def page(call: Call, found: Object, *, server: str) -> Object:
    """Return a page of a list, its items with the kind and apiVersion that the API server leaves out. Raises NoAnswer for anything else."""
    items, about_it = found.get("items"), found.get("metadata")
    if items is None:
        items = []
    if not isinstance(items, list) or not all(isinstance(item, dict) and item for item in items) or not isinstance(about_it or {}, dict):
        raise _nonsense(call, server, Reason.MALFORMED, "not a list of objects")
    kind, version = str(found.get("kind", "")), found.get("apiVersion")
    if kind.endswith("List") and kind != "List":
        items = [{"kind": kind.removesuffix("List"), "apiVersion": version, **item} for item in items]
    return {**found, "items": items, "metadata": about_it or {}}


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"null")


_line_decoder: Final = msgspec.json.Decoder(_Line)


class WatchDecoder:
    """Turns the bytes of a watch into events, however they are split.

    Lines are decoded in two steps, the type before the object, so an ERROR event is never mistaken for an object.
    """

    def __init__(self, call: Call, *, server: str, limit: int = 0) -> None:
        """Keep the arguments. `limit` is that of a line, if it is smaller than `LINE_LIMIT`."""
        self._call = call
        self._server = server
        self._limit = min(limit or LINE_LIMIT, LINE_LIMIT)
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> Iterator[WatchEvent]:
        """Yield the complete events. Raises the StatusError of an ERROR event (410 is Gone), and NoAnswer for anything unreadable."""
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            whole = bytes(self._begun + line) if self._begun else line
            self._begun.clear()
            if whole.strip():
                yield self._event(whole)
        self._begun += rest
        if len(self._begun) > self._limit:
            raise _nonsense(self._call, self._server, Reason.TOO_LARGE, f"a watch event of more than {self._limit} bytes")

    def end(self) -> None:
        """Note the end of the stream. Raises NoAnswer if an event was cut short."""
        if self._begun.strip():
            raise _nonsense(self._call, self._server, Reason.TRUNCATED, "a watch event without its end")

    def _event(self, line: bytes) -> WatchEvent:
        try:
            found = _line_decoder.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise _nonsense(self._call, self._server, Reason.MALFORMED, "a watch event that is not JSON") from error
        obj = _decode(self._call, bytes(found.object), server=self._server)
        if found.type == "ERROR":
            code = obj.get("code")
            raise _status_error(self._call, code if isinstance(code, int) else 500, obj, headers={}, text=bytes(found.object))
        kind = _EVENT_TYPES.get(found.type)
        if kind is None:
            raise _nonsense(self._call, self._server, Reason.MALFORMED, f"a watch event of type {_printable(found.type)}")
        return WatchEvent(kind, obj)


def _decode(call: Call, body: bytes, *, server: str) -> Object:
    try:
        found = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _nonsense(call, server, Reason.MALFORMED, f"not a JSON object: {_excerpt(body)}") from error
    if "metadata" in found and not isinstance(found["metadata"], dict):
        raise _nonsense(call, server, Reason.MALFORMED, "an object whose metadata is not a map")
    return found


def _status_of(body: bytes) -> Object:
    try:
        found = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return found if found.get("kind") == "Status" else {}


def _status_error(call: Call, code: int, status: Mapping[str, Any], *, headers: Mapping[str, str], text: bytes) -> errors.StatusError:
    reason = status.get("reason") if isinstance(status.get("reason"), str) else ""
    kind = _BY_REASON.get(reason or "") or _BY_CODE.get(code) or (errors.ServerError if code >= 500 else errors.StatusError)
    message = status.get("message")
    shown = _printable(message) if isinstance(message, str) and message else f"status code {code}: {_excerpt(text)}"
    return kind(
        f"the API server refused to {call.doing} {call.about}",
        code=code,
        reason=reason or "",
        status=status,
        retry_after=_retry_after(headers, status),
        detail=mask(shown),
        remedy=_REMEDIES.get(kind, ""),
    )


def _retry_after(headers: Mapping[str, str], status: Mapping[str, Any]) -> float | None:
    """Return the seconds to wait: from the header (whole seconds; the API server sends no dates), otherwise from the Status object's detail."""
    given = headers.get("retry-after", "")
    if given.isascii() and given.isdigit() and len(given) < 7:
        return float(given)
    details = status.get("details")
    seconds = details.get("retryAfterSeconds") if isinstance(details, Mapping) else None
    return float(seconds) if isinstance(seconds, int) and not isinstance(seconds, bool) and 0 < seconds < 10**6 else None


def _nonsense(call: Call, server: str, reason: Reason, detail: str) -> NoAnswer:
    return NoAnswer(f"no usable answer from {server} to {call.doing} {call.about}", reason=reason, detail=detail)


def _excerpt(body: bytes) -> str:
    """Show the beginning of a body as one line of text, without HTML tags."""
    text = body[: 20 * _EXCERPT].decode("utf-8", "replace")
    if "<html" in text[:500].lower() or "<!doctype" in text[:500].lower():
        text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL | re.IGNORECASE)
    shown = " ".join(_printable(text).split())
    return shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}..."


def _printable(text: str) -> str:
    return "".join(mark if mark.isprintable() else " " for mark in text[:4096])


def worth_retrying(error: Exception) -> bool:
    """Whether the same call may succeed later.

    This includes 401, 403 and 404, because rights and namespaces appear during start-up.
    """
    if isinstance(error, NoAnswer):
        return error.reason not in _FINAL_REASONS
    if isinstance(error, StatusError):
        return not isinstance(error, Invalid) and error.code not in _FINAL_CODES
    return isinstance(error, APIError)


def asked_to_wait(error: Exception | None, *, most: float) -> float:
    """Return the seconds for which a server asks to be left alone (Retry-After), at most `most`; 0 if it does not ask.

    A proxy in maintenance may ask for a day.
    """
    return min(error.retry_after or 0.0, most) if isinstance(error, StatusError) else 0.0


def persist(call: Callable[[], T], *, clock: Clock, within: float = API_CALL_TIMEOUT, failed: Failed | None = None) -> T:
    """Call until it succeeds; after `within` seconds the last error is raised unchanged. `failed` is that of `retry`."""
    return retry(call, clock=clock, on=worth_retrying, within=within, backoff=PAUSES, failed=failed)
