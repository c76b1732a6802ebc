"""Programs for the tests of binaries: the smallest ELF file that prints a line, for this machine's architecture."""

from __future__ import annotations

import os
import struct
from pathlib import Path

MACHINES = {"amd64": 62, "arm64": 183}
NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
FOREIGN = "arm64" if NATIVE == "amd64" else "amd64"
ADDRESS = 0x400000
HEADERS = 64 + 56


def elf_program(answer: str, *, architecture: str = NATIVE) -> bytes:
    """Return an ELF program that prints one line and exits with 0."""
    message = answer.encode() + b"\n"
    code = _CODE[architecture](len(message))
    size = HEADERS + len(code) + len(message)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9), 2, MACHINES[architecture], 1, ADDRESS + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, ADDRESS, ADDRESS, size, size, 0x1000)
    return header + segment + code + message


def _amd64(length: int) -> bytes:
    tail = b"\xba" + struct.pack("<I", length) + b"\x0f\x05" + b"\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05"
    return b"\xb8\x01\x00\x00\x00\xbf\x01\x00\x00\x00" + b"\x48\x8d\x35" + struct.pack("<i", len(tail)) + tail


def _arm64(length: int) -> bytes:
    def move(register: int, value: int) -> int:
        return 0xD2800000 | (value << 5) | register

    words = [move(8, 64), move(0, 1), 0x10000001 | (6 << 5), move(2, length), 0xD4000001, move(8, 93), move(0, 0), 0xD4000001]
    return struct.pack("<8I", *words)


_CODE = {"amd64": _amd64, "arm64": _arm64}

ANSWERS = {
    "etcd": "etcd Version: 3.6.8",
    "etcdctl": "etcdctl version: 3.6.8",
    "etcdutl": "etcdutl version: 3.6.8",
    "kubectl": "Client Version: v1.36.3",
    "kubeadm": "v1.36.3",
    "coredns": "CoreDNS-1.14.2",
    "containerd": "containerd github.com/containerd/containerd/v2 v2.2.1 dea7da5",
    "ctr": "ctr github.com/containerd/containerd/v2 v2.2.1",
    "containerd-shim-runc-v2": "containerd-shim-runc-v2:\n  Version: v2.2.1",
    "runc": "runc version 1.5.2",
    "bridge": "CNI bridge plugin v1.9.0",
    "wireguard-go": "wireguard-go v0.0.20250522",
}


def program(name: str, *, architecture: str = NATIVE) -> bytes:
    """Return a fake of a program of the table, in the version that belongs to Kubernetes v1.36.3."""
    return elf_program(ANSWERS.get(name, "Kubernetes v1.36.3"), architecture=architecture)


def put(directory: Path, name: str, content: bytes, *, mode: int = 0o755) -> Path:
    """Write one program."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_bytes(content)
    path.chmod(mode)
    return path
