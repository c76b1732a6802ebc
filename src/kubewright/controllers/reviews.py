"""Access reviews shared by concurrent identical questions: thousands of machines that join with one token are one user.

A question that arrives while an identical review is in flight waits for the next review, so no answer is older than its
question. Nothing is cached.

asked ── the previous review has its answer ──> sent ──> answered, to all who asked before it was sent
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object


class SharedReviews:
    """Sends SubjectAccessReviews, at most one at a time per key."""

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api
        self._waiting: dict[Hashable, asyncio.Task[bool]] = {}
        self._sent: dict[Hashable, asyncio.Task[bool]] = {}

    async def allowed(self, key: Hashable, review: Object) -> bool:
        """Ask; equal reviews need equal keys. Raises APIError to all callers that share the review."""
        task = self._waiting.get(key)
        if task is None:
            task = self._waiting[key] = asyncio.create_task(self._ask(key, review), name="access review")
        return await asyncio.shield(task)  # cancelling one caller does not end the review for the others

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
