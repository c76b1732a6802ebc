"""Trying a call again while the cluster is coming up (kubeadm retries every API error each 500 ms for `timeouts.kubernetesAPICall`).

We stop at once for errors that no waiting mends, and begin with shorter pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Invalid, StatusError
from kubewright.base.retry import Backoff, retry
from kubewright.http.failures import NoAnswer, Reason

T = TypeVar("T")

API_CALL_TIMEOUT: Final = 60.0
"""kubeadm's default of timeouts.kubernetesAPICall, in seconds."""
PAUSES: Final = Backoff(first=0.05, factor=1.5, limit=0.5)

_FINAL_CODES: Final = frozenset({400, 405, 406, 413, 415, 422})
_FINAL_REASONS: Final = frozenset({Reason.UNTRUSTED, Reason.REDIRECTED, Reason.CLOSED})


def worth_retrying(error: Exception) -> bool:
    """Whether the same call may succeed later: also 401, 403 and 404, because rights and namespaces appear while a cluster starts."""
    if isinstance(error, NoAnswer):
        return error.reason not in _FINAL_REASONS
    if isinstance(error, StatusError):
        return not isinstance(error, Invalid) and error.code not in _FINAL_CODES
    return isinstance(error, APIError)


def persist(
    call: Callable[[], T], *, clock: Clock, within: float = API_CALL_TIMEOUT, on: Callable[[Exception], bool] = worth_retrying
) -> T:
    """Call until it succeeds; the last error is raised as it is after `within` seconds."""
    return retry(call, clock=clock, on=on, within=within, backoff=PAUSES)


async def persist_async(
    call: Callable[[], Awaitable[T]], *, within: float = API_CALL_TIMEOUT, on: Callable[[Exception], bool] = worth_retrying
) -> T:
    """The asynchronous form of `persist`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    pauses = PAUSES.pauses()
    while True:
        try:
            return await call()
        except APIError as error:
            left = end - loop.time()
            if not on(error) or left <= 0:
                raise
        await asyncio.sleep(min(next(pauses), left))
