"""Keeping the mirror pods of a machine: observe, plan with `mirror`, act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubewright.agent import mirror, podlife
from kubewright.agent.mirror import Action, Create, Remove
from kubewright.agent.pods import Pods
from kubewright.agent.static_pods import StaticPods
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import APIError
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import POD

_RETRY = 1.0
"""Seconds after which what was refused is tried again."""


class Mirrors:
    """Makes the API show the static pods of one machine. Runs once its Node is registered, because it owns them."""

    def __init__(self, api: Callable[[], AsyncKubeAPI], static: StaticPods, pods: Pods, *, host: tuple[str, ...], clock: Clock) -> None:
        self._api = api
        self._static = static
        self._pods = pods
        self._host = host
        self._clock = clock

    async def run(self, node: Callable[[], Object]) -> None:
        """Follow the provider for ever; `node` returns the Node as it is known."""
        await self._pods.listed.wait()
        self._static.changed.set()
        while True:
            await self._static.changed.wait()
            self._static.changed.clear()
            if not await self._sync(node()):
                asyncio.get_running_loop().call_later(_RETRY, self._static.changed.set)

    async def _sync(self, node: Object) -> bool:
        """Do what is due. Returns whether all of it worked."""
        mirrors = [pod for pod in self._pods.all() if podlife.is_mirror(pod)]
        actions = mirror.plan(self._static.list(), mirrors, node=node, host=self._host, now=rfc3339(self._clock.now()))
        done = [await self._try(action) for action in actions]
        return all(done)

    async def _try(self, action: Action) -> bool:
        try:
            await self._act(action)
        except APIError:
            return False
        return True

    async def _act(self, action: Action) -> None:
        if isinstance(action, Create):
            await self._api().create(action.pod)
            return
        metadata = action.pod["metadata"]
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        if isinstance(action, Remove):
            await self._api().delete(POD, name, namespace, grace_seconds=0, uid=uid)
        else:
            body = {"metadata": {"uid": uid}, "status": action.status}
            await self._api().patch(POD, name, body, namespace, subresource="status")
