"""Set-up for all tests: our own plugin, the plugins of the neighbouring modules, and working interrupts.

No event loop is left open. The looptime plugin asks the policy for the current loop around synchronous tests too, and
Python 3.11 creates one if none was ever set; its ResourceWarning then fails whatever test is running. After None has
been set once, the policy creates no loop.

A shell starts background jobs with SIGINT ignored, nohup starts its command with SIGHUP ignored, and children inherit
that: tests that interrupt a command need both signals restored.
"""

import asyncio
import logging
import signal
from importlib.metadata import entry_points

import pytest

from kubewright.base import masking

asyncio.set_event_loop(None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

INSTALLED = any(found.name == "kubewright" for found in entry_points(group="pytest11"))
pytest_plugins = [
    "matrices",
    "skips",
    "seconds",
    "examples",
    "parts",
    "lanes",
    "progress",
    "other_user",
    *([] if INSTALLED else ["kubewright.testing.plugin"]),
]


@pytest.fixture(autouse=True)
def no_secret_is_known():
    """Forget the secrets that a test has read, so that the next test does not mask them."""
    masking.forget()


@pytest.fixture(autouse=True)
def no_log_is_set_up():
    """Reset logging after each test: a command with -v configures it for the whole process."""
    logger = logging.getLogger("kubewright")
    kept = (list(logger.handlers), logger.level, logger.propagate)
    logger.handlers[:] = []  # and before it, because a fixture of the whole session may have configured it
    yield
    logger.handlers[:], logger.propagate = kept[0], kept[2]
    logger.setLevel(kept[1])
