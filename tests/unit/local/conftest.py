"""For all tests, as soon as this is collected: no event loop that nobody closes.

The looptime plugin asks the policy for the current loop around synchronous tests too, and Python 3.11 makes one when none was ever set;
its ResourceWarning then fails whatever test is running. Having set None once, the policy says that there is none.
"""

import asyncio

asyncio.set_event_loop(None)
