"""Unexpected errors in daemons: each is logged with its traceback and counted, and the work that failed is retried after a pause.

An error of our tree (`KubewrightError`) says what is wrong and what to do about it, and callers handle it. Any other
exception is a bug in kubewright. It must not stop other work or end a daemon silently, and it must be visible: the
log shows it, and the metric `kubewright_unexpected_errors_total` counts it (`http.metrics`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from kubewright.base.errors import KubewrightError
from kubewright.base.randomness import Random, SystemRandom
from kubewright.base.wait import Backoff

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

BACKOFF: Final = Backoff(first=0.5, factor=2.0, limit=60.0, jitter=0.5)
LASTED: Final = 120.0
"""Seconds of running after which a failure counts as the first one again, with the shortest pause."""

_COUNTS: Counter[str] = Counter()


def counts() -> Mapping[str, int]:
    """Return the number of unexpected errors in this process by the work that failed."""
    return dict(_COUNTS)


def report(work: str, error: BaseException, *, again: float | None = None) -> None:
    """Log and count an unexpected error. `work` names what failed (one of a few names: it labels a metric), `again` is the pause before the retry."""
    _COUNTS[work] += 1
    next_try = "" if again is None else f"; retrying in {again:.1f} s"
    _log.error("%s failed unexpectedly%s", work, next_try, exc_info=error, extra={"traceback": True})


def attempted(work: str, call: Callable[..., object], *arguments: Any) -> bool:
    """Call a function whose failure must not stop the caller. Return whether it succeeded."""
    try:
        call(*arguments)
    except Exception as error:
        report(work, error)
        return False
    return True


async def keep_running(
    work: str,
    run: Callable[[], Awaitable[T]],
    *,
    expected: type[Exception] | tuple[type[Exception], ...] = KubewrightError,
    random: Random | None = None,
) -> T:
    """Run something until it ends, and restart it after a growing pause whenever it raises an error that is not `expected`.

    An expected error, or a group of only such errors, is raised.
    """
    import asyncio  # commands do not need it

    loop, random = asyncio.get_running_loop(), random or SystemRandom()
    pauses = BACKOFF.pauses(random)
    while True:
        started = loop.time()
        try:
            return await run()
        except Exception as error:
            if _is_expected(error, expected):
                raise
            if loop.time() - started > LASTED:
                pauses = BACKOFF.pauses(random)
            pause = next(pauses)
            report(work, error, again=pause)
        await asyncio.sleep(pause)


def _is_expected(error: Exception, expected: type[Exception] | tuple[type[Exception], ...]) -> bool:
    if isinstance(error, ExceptionGroup):
        return error.split(expected)[1] is None
    return isinstance(error, expected)
