"""What a daemon tells the service manager that started it (systemd: sd_notify(3), sd_watchdog_enabled(3)).

Without NOTIFY_SOCKET nothing is sent; a message that cannot be sent is dropped: nothing depends on being heard.
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
"""Seconds that a service manager which does not read is waited for, where a message matters."""


class Notifier:
    """The service manager, as the environment names it. Holds nothing open."""

    def __init__(self, environment: Mapping[str, str], *, pid: int | None = None) -> None:
        """Keep the address. `pid` is this process's by default."""
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._period = _watchdog(environment, os.getpid() if pid is None else pid)

    @property
    def watchdog(self) -> float | None:
        """Seconds between two signs of life: half of what the service manager waits for. None: it does not wait for any."""
        return self._period / 2 if self._period is not None else None

    def ready(self, status: str = "") -> None:
        """Say that the start is over, with one line on what is done now."""
        self._send(READY, *([f"STATUS={_line(status)}"] if status else []), within=_PATIENCE)

    def status(self, text: str) -> None:
        """Say in one line what is done now."""
        self._send(f"STATUS={_line(text)}")

    def alive(self) -> None:
        """Give a sign of life."""
        self._send(WATCHDOG)

    def stopping(self) -> None:
        """Say that the end has begun."""
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
    """Return the seconds of WATCHDOG_USEC, where they are meant for this process."""
    count, meant = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not count.isdecimal() or not int(count) or meant not in {"", str(pid)}:
        return None
    return int(count) / _MICROSECONDS


def _line(text: str) -> str:
    return " ".join(text.split())
