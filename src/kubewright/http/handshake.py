"""Whether a TLS server serves yet, at the price of one handshake and without an HTTP library.

kube-apiserver opens its port at once and serves a second later: a handshake that is begun in between ends when it does.
"""

from __future__ import annotations

from contextlib import suppress

from kubewright.http import tls
from kubewright.http.deadlines import Deadline, connected, holding


def serves(address: str, port: int, *, within: float) -> bool:
    """Shake hands, waiting at most so many seconds. The certificate is not verified and nothing is sent."""
    context = tls.anonymous_context(None, verify=False)
    with suppress(OSError), holding(Deadline(within)), connected(address, port, silence=None) as connection:
        context.wrap_socket(connection).close()
        return True
    return False


async def serves_async(address: str, port: int, *, within: float) -> bool:
    """The asynchronous form of `serves`."""
    import asyncio  # commands have no use for it, and it takes 15 ms

    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(within):
            _, writer = await asyncio.open_connection(address, port, ssl=tls.anonymous_context(None, verify=False))
        writer.transport.abort()
        return True
    return False
