"""What the commands that run daemons have in common."""

from __future__ import annotations

import asyncio

from kubewright.base import unexpected
from kubewright.base.errors import HostError
from kubewright.base.wait import Backoff
from kubewright.cli.handlers.daemons import running as daemons


async def test_side_tasks_are_restarted_after_any_error(monkeypatch) -> None:
    monkeypatch.setattr(
        unexpected.keep_running, "__kwdefaults__", {**unexpected.keep_running.__kwdefaults__, "backoff": Backoff(first=0.0, limit=0.0)}
    )
    errors, enough, before = [HostError("no such socket"), OSError("odd")], asyncio.Event(), sum(unexpected.counts().values())

    async def beside() -> None:
        if errors:
            raise errors.pop(0)
        enough.set()
        await asyncio.Event().wait()

    await daemons.until_stopped(enough.wait, alongside=beside, stopping=lambda: None)
    assert sum(unexpected.counts().values()) - before == 2
