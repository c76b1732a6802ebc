"""For all tests: our own plugin, also where kubewright is only on the path; and no event loop that nobody closes.

The looptime plugin asks the policy for the current loop around synchronous tests too, and Python 3.11 makes one when none was ever set;
its ResourceWarning then fails whatever test is running. Having set None once, the policy says that there is none.
"""

import asyncio
from importlib.metadata import entry_points

asyncio.set_event_loop(None)

INSTALLED = any(found.name == "kubewright" for found in entry_points(group="pytest11"))
pytest_plugins = [] if INSTALLED else ["kubewright.testing.plugin"]
