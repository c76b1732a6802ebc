"""Notifications of a daemon to the service manager that started it (systemd: sd_notify(3), sd_watchdog_enabled(3)).

Nothing is sent without NOTIFY_SOCKET. A message that cannot be sent is dropped: nothing depends on its delivery.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

_log = logging.getLogger(__name__)

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"
_MICROSECONDS: Final = 1_000_000
_PATIENCE: Final = 1.0
"""Seconds to wait for a service manager that does not read, for messages that matter."""


class Notifier:
    """The service manager that the environment names. Keeps nothing open."""

    def __init__(self, environment: Mapping[str, str], *, pid: int | None = None) -> None:
        """Store the address. `pid` is this process's by default."""
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._period = _watchdog(environment, os.getpid() if pid is None else pid)

    @property
    def watchdog(self) -> float | None:
        """Seconds between two keep-alive messages: half the service manager's interval; None if it has none."""
        return self._period / 2 if self._period is not None else None

    def ready(self, status: str = "") -> None:
        """Report that the start is complete, with one line of status."""
        self._send(READY, *([f"STATUS={_line(status)}"] if status else []), within=_PATIENCE)

    def status(self, text: str) -> None:
        """Report one line of status."""
        self._send(f"STATUS={_line(text)}")

    def alive(self) -> None:
        """Send a keep-alive message."""
        self._send(WATCHDOG)

    def stopping(self) -> None:
        """Report that the daemon is stopping."""
        self._send(STOPPING, within=_PATIENCE)

    def _send(self, *lines: str, within: float = 0.0) -> None:
        if not self._address.startswith(("/", "@")):
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(within)
                sock.connect(address)
                sock.send("\n".join(lines).encode())
        except OSError as error:
            _log.debug("the service manager was not notified of %s: %s", lines[0], error)


def _watchdog(environment: Mapping[str, str], pid: int) -> float | None:
    """Return the seconds of WATCHDOG_USEC if they are meant for this process."""
    count, meant = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not count.isdecimal() or not int(count) or meant not in {"", str(pid)}:
        return None
    return int(count) / _MICROSECONDS


def _line(text: str) -> str:
    return " ".join(text.split())
