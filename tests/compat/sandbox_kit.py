"""Pods in a real runtime without a kubelet: CRI calls that kubewright itself does not make, encoded field by field."""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping
from contextlib import closing

import grpc
import pytest

RUNTIME = "/runtime.v1.RuntimeService/"
NODE_NETWORK = 2
_CODE = bytes.fromhex(
    "b801000000"  # mov eax, 1 (write)
    "bf01000000"  # mov edi, 1
    "488d3510000000"  # lea rsi, [rip + 16]: the text below
)
_REST = bytes.fromhex("0f05b8220000000f05ebf7")  # syscall; for ever: mov eax, 34 (pause), syscall


def tiny_program(text: str) -> bytes:
    """An ELF program for Linux on x86-64 without libraries: it writes a text and then waits until it is killed."""
    if platform.machine() != "x86_64":
        pytest.skip("the tiny program is for x86-64")
    code = _CODE + b"\xba" + struct.pack("<I", len(text.encode())) + _REST + text.encode()
    start, head = 0x400000, 64 + 56
    elf = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 2, 62, 1, start + head, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    program = struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, head + len(code), head + len(code), 0x1000)
    return elf + program + code


def message(fields: Mapping[int, object]) -> bytes:
    """Encode a protobuf message: numbers, texts, messages (bytes), and lists of them."""
    return b"".join(_field(number, one) for number, value in fields.items() for one in (value if isinstance(value, list) else [value]))


def _field(number: int, value: object) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value if isinstance(value, bytes) else str(value).encode()
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


def run_pod(endpoint: str, *, name: str, logs: str, cgroup: str) -> tuple[str, bytes]:
    """Start a sandbox in the network of the machine; returns its ID and its configuration, which its containers need."""
    security = message({1: message({1: NODE_NETWORK})})
    described = message({1: name, 2: f"uid-{name}", 3: "kube-system"})
    config = message({1: described, 3: logs, 8: message({1: cgroup, 2: security})})
    return _identifier(_call(endpoint, "RunPodSandbox", message({1: config}))), config


def run_container(endpoint: str, sandbox: str, config: bytes, *, name: str, image: str, log: str) -> str:
    """Start a container with the labels of the kubelet; returns its ID."""
    labels = {"io.kubernetes.container.name": name, "io.kubernetes.pod.namespace": "kube-system"}
    rows = [message({1: key, 2: value}) for key, value in labels.items()]
    wanted = message({1: message({1: name}), 2: message({1: image}), 9: rows, 11: log})
    made = _identifier(_call(endpoint, "CreateContainer", message({1: sandbox, 2: wanted, 3: config})))
    _call(endpoint, "StartContainer", message({1: made}))
    return made


def _call(endpoint: str, name: str, request: bytes) -> bytes:
    options = [("grpc.default_authority", "localhost")]
    with closing(grpc.insecure_channel(endpoint, options=options)) as channel:
        return channel.unary_unary(f"{RUNTIME}{name}")(request, timeout=600)


def _identifier(answer: bytes) -> str:
    """The first field, a short text."""
    return answer[2 : 2 + answer[1]].decode()
