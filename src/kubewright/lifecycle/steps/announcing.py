"""Wrappers of the API that observe calls: to report a step before its first write, or as unnecessary; and to notice responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kubewright.base.change import Change
from kubewright.base.errors import StatusError
from kubewright.http.messages import Request, Response
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call, Object

_READS: Final = frozenset({"get", "list", "watch"})


def announced(
    api: KubeAPI, write: Callable[[KubeAPI], Iterable[Change]], *, say: Callable[[str], None], doing: Iterable[str], kept: str
) -> Iterator[Change]:
    """Yield the changes of `write`, which is passed the API.

    The lines of `doing` are reported before its first write, or `kept` at its end.
    """

    def announce() -> None:
        for line in doing:
            say(line)

    announcing = _Announcing(api, announce)
    yield from write(announcing)
    if not announcing.has_written:
        say(kept)


class _Announcing(KubeAPI):
    """Calls `announce` before the first call that may change something."""

    def __init__(self, inner: KubeAPI, announce: Callable[[], None]) -> None:
        self._inner = inner
        self._announce = announce
        self.has_written = False

    def send(self, call: Call, /) -> Object:
        if call.verb not in _READS and not self.has_written:
            self.has_written = True
            self._announce()
        return self._inner.send(call)

    def exchange(self, request: Request, /) -> Response:
        return self._inner.exchange(request)


class Noticing(KubeAPI):
    """Calls `answered` after each response, including refusals."""

    def __init__(self, inner: KubeAPI, answered: Callable[[], None]) -> None:
        self._inner = inner
        self._answered = answered

    def send(self, call: Call, /) -> Object:
        try:
            found = self._inner.send(call)
        except StatusError:
            self._answered()
            raise
        self._answered()
        return found

    def exchange(self, request: Request, /) -> Response:
        found = self._inner.exchange(request)
        self._answered()
        return found
