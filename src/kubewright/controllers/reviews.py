"""Questions about rights, shared by those who ask the same at the same time: thousands of machines that join with one token are one user.

A question that comes while the same one is on its way waits for the next: no answer is older than its question, and none is kept.

asked ── the one before has its answer ──> sent ──> answered, to all who asked before it was sent
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object


class SharedReviews:
    """Sends SubjectAccessReviews, at any time one for each key."""

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api
        self._waiting: dict[Hashable, asyncio.Task[bool]] = {}
        self._sent: dict[Hashable, asyncio.Task[bool]] = {}

    async def allowed(self, key: Hashable, review: Object) -> bool:
        """Ask. `key` says what is asked: the same for the same review. Raises APIError, to all who share the question."""
        task = self._waiting.get(key)
        if task is None:
            task = self._waiting[key] = asyncio.create_task(self._ask(key, review), name="access review")
        return await asyncio.shield(task)  # who is cancelled ends the question for nobody else

    async def _ask(self, key: Hashable, review: Object) -> bool:
        before = self._sent.get(key)
        if before is not None:
            await asyncio.wait([before])
        self._sent[key] = self._waiting.pop(key)
        try:
            return bool(((await self._api.create(review)).get("status") or {}).get("allowed"))
        finally:
            if self._sent.get(key) is asyncio.current_task():
                del self._sent[key]
