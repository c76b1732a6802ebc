"""A daemon logs unexpected errors with their traceback, counts them, and retries. Time is virtual."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

import pytest

from kubewright.base import logs, unexpected
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.randomness import SeededRandom
from kubewright.http.metrics import Registry

WORK = "work of a test"


def told() -> int:
    return unexpected.counts().get(WORK, 0)


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(1, stream=stream)
    return stream


def failing(*errors: Exception | float | None) -> Callable[[], object]:
    """Create work that fails once with each error, after this many seconds if it is a number, and then returns "done"."""
    left = list(errors)

    async def run() -> str:
        error = left.pop(0) if left else None
        if isinstance(error, float):
            await asyncio.sleep(error)
            raise KeyError("odd")
        if error is not None:
            raise error
        return "done"

    return run


@pytest.mark.looptime
async def test_an_unexpected_error_is_logged_with_its_traceback_counted_and_retried_after_growing_pauses(log) -> None:
    before, started = told(), asyncio.get_running_loop().time()
    run = failing(KeyError("odd"), ValueError("odder"), ExceptionGroup("both", [HostError("full"), KeyError("odd")]))
    assert await unexpected.keep_running(WORK, run, random=SeededRandom(1)) == "done"
    assert told() - before == 3
    assert 0.5 + 1 + 2 <= asyncio.get_running_loop().time() - started <= 1.5 * (0.5 + 1 + 2)
    lines = log.getvalue().splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert [f"{WORK} failed unexpectedly; retrying in" in line for line in heads] == [True] * 3
    assert sum("Traceback" in line for line in lines) >= 3
    assert "KeyError: 'odd'" in log.getvalue()


@pytest.mark.looptime
async def test_work_that_ran_for_a_long_time_is_retried_after_the_first_pause() -> None:
    started = asyncio.get_running_loop().time()
    await unexpected.keep_running(WORK, failing(KeyError(), KeyError(), 1000.0), random=SeededRandom(1))
    assert asyncio.get_running_loop().time() - started <= 1000 + 1.5 * (0.5 + 1 + 0.5)


@pytest.mark.parametrize("error", [HostError("full"), ExceptionGroup("both", [HostError("full"), KubewrightError("wrong")])])
async def test_expected_errors_are_raised(error: Exception) -> None:
    before = told()
    with pytest.raises(type(error)):
        await unexpected.keep_running(WORK, failing(error))
    assert told() == before


@pytest.mark.looptime
async def test_errors_of_our_tree_are_reported_if_none_is_expected() -> None:
    before = told()
    assert await unexpected.keep_running(WORK, failing(HostError("full")), expected=()) == "done"
    assert told() - before == 1


async def test_cancelling_ends_it() -> None:
    task = asyncio.create_task(unexpected.keep_running(WORK, asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_metrics_of_every_daemon_have_the_count(log) -> None:
    assert not unexpected.attempted(WORK, {}.__getitem__, "missing")
    assert unexpected.attempted(WORK, {"there": 1}.__getitem__, "there")
    text = Registry().read().body.decode()
    assert f'kubewright_unexpected_errors_total{{work="{WORK}"}} {float(told())}' in text
