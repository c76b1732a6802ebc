"""Leader election: its options from the flags `electing` of `model`, and the identity of a process."""

from __future__ import annotations

import os
import uuid

from kubewright.base.errors import UsageError
from kubewright.base.randomness import Random
from kubewright.cli.parsing.inputs import given_duration
from kubewright.cli.parsing.parser import Parsed
from kubewright.kube.daemons.electing import JITTER, Election


def election(parsed: Parsed, *, name: str, namespace: str) -> Election | None:
    """Return the election, None if it is disabled. Raises UsageError for inconsistent times."""
    if not parsed.flag("leader-elect"):
        return None
    lease, renew, retry = (
        given_duration(parsed, f"leader-elect-{flag}").seconds for flag in ("lease-duration", "renew-deadline", "retry-period")
    )
    if lease < 1 or not lease > renew > JITTER * retry:
        raise UsageError(
            "--leader-elect-lease-duration must be at least a second, and longer than --leader-elect-renew-deadline, and that longer than"
            f" {JITTER} times --leader-elect-retry-period",
            remedy="leave them out: the defaults are 15s, 10s and 2s",
        )
    return Election(name=name, namespace=namespace, lease=lease, renew=renew, retry=retry)


def identity(random: Random) -> str:
    """Return the identity of this process: a new one each time, as in programs that use client-go."""
    return f"{os.uname().nodename}_{uuid.UUID(bytes=random.token_bytes(16), version=4)}"
