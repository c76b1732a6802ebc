"""A network of this test run's own: loopback and nothing else, so that no other run's servers are in the way, nor ours in theirs.

A local cluster that is down wants its addresses back, and one test listens on all addresses. Needs root; an ordinary user's run has the network
that everybody has, where addresses are claimed (see `loopback`).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1
_NAMESPACE: Final = "/proc/thread-self/ns/net"


@contextmanager
def entered() -> Iterator[None]:
    """Have this thread, and whatever it starts, in that network: the same one each time in this process."""
    if os.geteuid() != 0:
        yield
        return
    before = os.open(_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(_made())
        yield
    finally:
        _enter(before)
        os.close(before)


def add_address(address: str) -> None:
    """Give the loopback interface of the network that we are in one more address, which no other machine could be reached by."""
    family = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", b"lo:1", family))


@cache
def _made() -> int:
    """Make the network, and return what holds it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
    return os.open(_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
