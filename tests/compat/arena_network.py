"""The network of an arena: one address and a default route on the loopback interface, without which no address is detected."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

ADDRESS = "10.98.0.12"

_SIOCADDRT, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x890B, 0x8914, 0x8916, 0x891C
_IFF_UP, _RTF_UP, _RTF_GATEWAY = 1, 1, 2
_INTERFACE = "lo"


class _Route(ctypes.Structure):
    """struct rtentry of <net/route.h>."""

    _fields_ = (
        ("pad1", ctypes.c_ulong),
        ("destination", ctypes.c_char * 16),
        ("gateway", ctypes.c_char * 16),
        ("mask", ctypes.c_char * 16),
        ("flags", ctypes.c_ushort),
        ("pad2", ctypes.c_short),
        ("pad3", ctypes.c_ulong),
        ("pad4", ctypes.c_void_p),
        ("metric", ctypes.c_short),
        ("device", ctypes.c_char_p),
        ("mtu", ctypes.c_ulong),
        ("window", ctypes.c_ulong),
        ("timeout", ctypes.c_ushort),
    )


def set_up() -> None:
    """Give this network namespace its address and its route. Needs the permission to administer it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _interface(control, _SIOCSIFFLAGS, _INTERFACE, struct.pack("H", _IFF_UP))
        _interface(control, _SIOCSIFADDR, f"{_INTERFACE}:1", _address(ADDRESS))
        _interface(control, _SIOCSIFNETMASK, f"{_INTERFACE}:1", _address("255.255.255.0"))
        route = _Route(flags=_RTF_UP, device=_INTERFACE.encode())
        for name in ("destination", "gateway", "mask"):
            ctypes.memmove(ctypes.addressof(route) + getattr(_Route, name).offset, _address("0.0.0.0"), 16)
        fcntl.ioctl(control, _SIOCADDRT, route)


def _interface(control: socket.socket, request: int, name: str, value: bytes) -> None:
    fcntl.ioctl(control, request, struct.pack("16s24s", name.encode(), value))


def _address(text: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))
