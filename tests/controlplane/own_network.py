"""A network for this test run: only loopback, so that servers of other runs do not interfere.

A local cluster that is restarted needs its old addresses, and one test listens on all addresses. Needs root; runs of
ordinary users have the host's network, where addresses are reserved (see `loopback`).
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
    """Move this thread, and what it starts, to that network; it is the same one each time in this process."""
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
    """Give the loopback interface of the current network another address, at which no other machine could be reached."""
    family = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", b"lo:1", family))


@cache
def _made() -> int:
    """Create the network, and return the object that keeps it open."""
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
