"""Processes that outlive the command that starts them."""

from __future__ import annotations

import subprocess


class DetachedProcess(subprocess.Popen[bytes]):
    """A process that may outlive this object and the process that created it."""

    def __del__(self) -> None:
        """Reap it if it has ended; unlike the parent class, do not warn otherwise.

        An interrupt may have come before its start.
        """
        if getattr(self, "pid", None) is not None:
            self.poll()
