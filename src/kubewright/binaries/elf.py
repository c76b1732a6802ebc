"""The few bytes of an ELF header that say for which machine a program was made (System V ABI, chapter 4)."""

from __future__ import annotations

import struct
from typing import Final

HEADER_LENGTH: Final = 20
MACHINES: Final = {
    3: "386",
    8: "mips",
    20: "ppc",
    21: "ppc64le",
    22: "s390x",
    40: "arm",
    62: "amd64",
    183: "arm64",
    243: "riscv64",
    258: "loong64",
}
_BYTE_ORDERS: Final = {1: "<", 2: ">"}
_EXECUTABLE_TYPES: Final = frozenset({2, 3})  # ET_EXEC, and ET_DYN for position-independent programs


def machine(header: bytes) -> str:
    """Return Go's name of the architecture that a program is for.

    `header` is at least the first 20 bytes of the file. Raises ValueError, saying what the file is instead.
    """
    if header[:4] != b"\x7fELF":
        raise ValueError(_not_elf(header))
    order = _BYTE_ORDERS.get(header[5]) if len(header) >= HEADER_LENGTH else None
    if order is None:
        raise ValueError("a damaged ELF file")
    kind, number = struct.unpack_from(f"{order}HH", header, 16)
    if kind not in _EXECUTABLE_TYPES:
        raise ValueError(f"an ELF file that is not a program (type {kind})")
    return MACHINES.get(number, f"ELF machine {number}")


def is_script(header: bytes) -> bool:
    """Tell whether the file begins with `#!`: it has no architecture of its own."""
    return header[:2] == b"#!"


def _not_elf(header: bytes) -> str:
    if not header:
        return "an empty file"
    if is_script(header):
        return "a script"
    if header[:2] == b"MZ":
        return "a Windows program"
    if header[:4] in {b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"}:
        return "a macOS program"
    return "not an ELF program"
