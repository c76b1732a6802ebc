"""Container logs in the kubelet API: the options of a request, and the protocol of log sources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from kubewright.base.errors import KubewrightError, StatusError
from kubewright.base.records import dataclass


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The options of a log request (core/v1 PodLogOptions)."""

    tail: int | None = None
    """Return only the last lines."""
    since: datetime | None = None
    follow: bool = False
    previous: bool = False
    """Read the container's previous instance."""
    timestamps: bool = False
    limit: int | None = None
    """Bytes after which the answer ends. The server enforces it."""

    @classmethod
    def parse(cls, query: Mapping[str, str], *, now: datetime) -> LogOptions:
        """Read the query of a request. Raises BadLogRequest, naming the parameter."""
        seconds = _number(query, "sinceSeconds", least=1)
        return cls(
            tail=_number(query, "tailLines", least=0),
            since=_moment(query) if seconds is None else _ago(seconds, now=now),
            follow=_flag(query, "follow"),
            previous=_flag(query, "previous"),
            timestamps=_flag(query, "timestamps"),
            limit=_number(query, "limitBytes", least=1),
        )


class BadLogRequest(StatusError):
    """A parameter of a log request is wrong."""

    def __init__(self, text: str) -> None:
        super().__init__(text, code=400, reason="BadRequest")


class NoLog(KubewrightError):
    """This container has no log; the text says why and is shown to the user."""


class LogSource(Protocol):
    """A source of container logs: on a control plane's machine the supervisor of its static pods."""

    def read(self, pod: Mapping[str, Any], container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """Yield a container's log in chunks of whole lines.

        Raises NoLog before the first chunk if there is none. `pod` is the Pod as the API has it. Ends when the
        container has ended, or without `options.follow` at the end of the log.
        """
        ...


async def limited(pieces: AsyncIterator[bytes], limit: int | None) -> AsyncIterator[bytes]:
    """Yield chunks until the limit in bytes is reached."""
    left = limit
    async for piece in pieces:
        yield piece if left is None else piece[:left]
        if left is not None:
            left -= len(piece)
            if left <= 0:
                return


def _number(query: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
        raise BadLogRequest(f"{name} must be a whole number of {least} or more")
    return int(text)


def _ago(seconds: int, *, now: datetime) -> datetime | None:
    """Return the time so many seconds ago; None, which is the beginning of the log, if that was before the first year."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None


def _flag(query: Mapping[str, str], name: str) -> bool:
    """Read a boolean as Go's apimachinery does: everything but '', 'false' and '0' is true."""
    return query.get(name, "").lower() not in {"", "false", "0"}


def _moment(query: Mapping[str, str]) -> datetime | None:
    text = query.get("sinceTime", "")
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadLogRequest("sinceTime must be a time as in 2026-01-02T03:04:05Z") from error
    if found.tzinfo is None:
        raise BadLogRequest("sinceTime must have a time zone")
    return found
