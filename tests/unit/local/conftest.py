"""Leave no event loop open in any test, as soon as this is collected.

The looptime plugin requests the current loop around synchronous tests too, and Python 3.11 creates one if none was
ever set; its ResourceWarning then fails whatever test is running. After None has been set once, the policy creates no
loop.
"""

import asyncio

asyncio.set_event_loop(None)
