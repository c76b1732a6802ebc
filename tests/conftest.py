"""For all tests: our own plugin, also where kubewright is only on the path; what the modules beside this one add; interrupts that work.

There is no event loop that nobody closes.

The looptime plugin asks the policy for the current loop around synchronous tests too, and Python 3.11 makes one when none was ever set;
its ResourceWarning then fails whatever test is running. Having set None once, the policy says that there is none.

Made-up examples have no deadline of their own: on a busy machine any of them may take long.

A shell starts what it puts into the background with SIGINT ignored, nohup what it runs with SIGHUP, and children inherit that: tests that stop a
command need them back.
"""

import asyncio
import logging
import signal
from importlib.metadata import entry_points

import pytest
from hypothesis import settings

from kubewright.base import masking

asyncio.set_event_loop(None)
settings.register_profile("kubewright", deadline=None)
settings.load_profile("kubewright")
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
    "parts",
    "lanes",
    "progress",
    "other_user",
    *([] if INSTALLED else ["kubewright.testing.plugin"]),
]


@pytest.fixture(autouse=True)
def no_secret_is_known():
    """What one test has read is no secret in the next."""
    masking.forget()


@pytest.fixture(autouse=True)
def no_log_is_set_up():
    """A command with -v sets the log up for its process: the next test is another one."""
    logger = logging.getLogger("kubewright")
    kept = (list(logger.handlers), logger.level, logger.propagate)
    logger.handlers[:] = []  # nor is it set up by what a fixture of the whole run has started
    yield
    logger.handlers[:], logger.propagate = kept[0], kept[2]
    logger.setLevel(kept[1])
