"""The notifications of a daemon to systemd, over the real protocol: datagrams on a Unix socket."""

from __future__ import annotations

import os
import socket

import pytest

from kubewright.host.notify import Notifier
from unix_sockets import short_path

__all__ = ["short_path"]


@pytest.fixture
def manager(short_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(short_path / "notify"))
        sock.setblocking(False)
        yield sock


def heard(manager: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(manager.recv(4096))
        except BlockingIOError:
            return found


def test_notifications_of_a_daemon_reach_the_service_manager(manager):
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    notifier.ready("watching\nREADY=0")
    notifier.status("working")
    notifier.alive()
    notifier.stopping()
    assert heard(manager) == [b"READY=1\nSTATUS=watching READY=0", b"STATUS=working", b"WATCHDOG=1", b"STOPPING=1"]


def test_an_abstract_socket_is_supported():
    name = f"kubewright-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.setblocking(False)
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert heard(sock) == [b"READY=1"]


@pytest.mark.parametrize("address", ["", "relative", "/no/such/socket", "vsock:2:1", "/" + "x" * 200])
def test_a_missing_service_manager_is_no_error(address):
    Notifier({"NOTIFY_SOCKET": address} if address else {}).ready()


def test_a_service_manager_that_does_not_read_blocks_nothing(manager):
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    for _ in range(2000):
        notifier.alive()
    assert set(heard(manager)) == {b"WATCHDOG=1"}


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_watchdog_notifications_are_sent_twice_per_interval(environment, seconds):
    assert Notifier(environment, pid=7).watchdog == seconds
