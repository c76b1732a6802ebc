"""Running the pods of a node: the interface that your program implements, and how its answers are used.

`NodeAgent` with a `PodProvider` is a node whose pods run: it passes each pod that is assigned to the node to the
provider, writes the status that the provider returns to the API, and confirms a deletion when the provider has ended
the pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from kubewright.agent.dependencies import backoff
from kubewright.agent.periodic import Tasks
from kubewright.agent.pods import lifecycle
from kubewright.agent.pods import status as podstatus
from kubewright.agent.pods.lifecycle import Nothing, PodAction, Write
from kubewright.kube.core import Object

_log = logging.getLogger(__name__)

_RETRY: Final = 2.0
_LONGEST_RETRY: Final = 60.0
"""Seconds between two attempts to have a provider run a pod; doubled after each failure, up to this."""


class PodProvider(Protocol):
    """Runs the pods of one node.

        begin() ──> listed() ──> for each pod: run() ──> (changed ──> status()) … ──> stop()

    Pods are plain objects, as the API has them; `metadata.uid` identifies them, and they must not be changed. All
    methods may be called again for the same pod, after an error, after a restart of the agent, and after each change of
    the pod, so they must be idempotent. There is one call at a time for each pod. Static pods and their mirrors are not
    passed.
    """

    def begin(self, changed: Callable[[str], None], /) -> None:
        """Store `changed`, and call it with the UID of a pod whose status has changed.

        Called once, before all other methods.
        """
        ...

    def listed(self, pods: Sequence[Object], /) -> None:
        """Receive the pods of the node, once they are known.

        The provider has to end all other pods that it still runs from before a restart.
        """
        ...

    async def run(self, pod: Object, /) -> None:
        """Run a pod as its `spec` says.

        Called with a new pod, and again when its spec, labels or annotations have changed. Returns when the pod is
        being started, without waiting for its end. An exception is logged, and the method is called again.
        """
        ...

    def status(self, pod: Object, /) -> Mapping[str, Any] | None:
        """Return the PodStatus to write (phase, conditions, containerStatuses, podIP, …), or None for nothing yet.

        Conditions of types that it does not contain stay. A pod whose phase is Succeeded or Failed has ended
        permanently.
        """
        ...

    async def stop(self, pod: Object, /, *, grace: float) -> None:
        """End a pod within `grace` seconds, and return when all of its processes have ended.

        Also called for pods that never ran here. The pod stays in the API until this has returned; an exception is
        logged, and the method is called again. With a grace period of 0 the pod has already been deleted from the
        API, or soon will be.
        """
        ...


class PodLife(Protocol):
    """Decides about the pods of a node: the pods' manager asks it about each pod and carries out the decision."""

    def begin(self, changed: Callable[[str], None], /) -> None:
        """Store a function to call with the UID of a pod that needs another decision."""
        ...

    def listed(self, pods: Sequence[Object], /) -> None:
        """Receive the existing pods, before anything is decided."""
        ...

    def give_ranges(self, cidrs: Sequence[str], pods: Iterable[Object], /) -> None:
        """Receive the node's ranges of pod addresses, and the existing pods."""
        ...

    def decide(self, pod: Object, /) -> PodAction:
        """Return what to do about a pod, given its newest object. Not called for mirror pods."""
        ...

    def forget(self, pod: Object, /) -> None:
        """Receive that a pod no longer exists."""
        ...

    async def stop(self) -> None:
        """Stop all work in progress. Idempotent."""
        ...


class _Held:
    """One pod that a provider has, or is about to receive."""

    def __init__(self) -> None:
        self.meant: object = None
        """The pod that the provider received last; None before the first time."""
        self.ended = False
        self.doing = ""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.failures = 0

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None:
            self.task.cancel()


class ProvidedPods:
    """Pods that a provider runs. Implements `PodLife`."""

    def __init__(self, provider: PodProvider) -> None:
        self._provider = provider
        self._changed: Callable[[str], None] = lambda _: None
        self._held: dict[str, _Held] = {}
        self._tasks = Tasks()
        self._closed = False

    def begin(self, changed: Callable[[str], None], /) -> None:
        self._changed = changed
        self._provider.begin(self._again)

    def listed(self, pods: Sequence[Object], /) -> None:
        self._provider.listed(pods)

    def give_ranges(self, cidrs: Sequence[str], pods: Iterable[Object], /) -> None:
        """Leave addresses to the provider."""

    def decide(self, pod: Object, /) -> PodAction:
        held = self._held.setdefault(pod["metadata"]["uid"], _Held())
        deleting = lifecycle.is_deleting(pod)
        if deleting and not held.ended:
            self._work(held, "end", pod)
        elif not deleting and not lifecycle.is_over(pod) and held.meant != _provider_parts(pod):
            self._work(held, "start", pod)
        status = self._provider.status(pod)
        if status is not None and not podstatus.says(pod, status):
            return Write(dict(status))
        return lifecycle.remove(pod) if deleting and held.ended else Nothing()

    def forget(self, pod: Object, /) -> None:
        """End a pod that was deleted by force, without waiting for us."""
        held = self._held.pop(pod["metadata"]["uid"], None)
        if held is None:
            return
        held.cancel()
        if held.meant is not None and not held.ended:
            self._tasks.start("ending a pod", partial(self._end_gone, pod))

    async def stop(self) -> None:
        self._closed = True
        for held in self._held.values():
            held.cancel()
        await self._tasks.stop()

    def _work(self, held: _Held, what: str, pod: Object) -> None:
        """Have the provider do something, unless it is already working on this pod or must wait after a failure."""
        if held.task is not None:
            if what == "end" and held.doing == "start":
                held.task.cancel()  # do not wait for a pod that is still being started
            return
        if held.timer is None or what != held.doing:
            held.cancel()
            held.timer, held.doing = None, what
            held.task = self._tasks.start("work on a pod", partial(self._attempt, held, what, pod, grace=lifecycle.grace_of(pod)))

    async def _attempt(self, held: _Held, what: str, pod: Object, *, grace: float) -> None:
        uid = pod["metadata"]["uid"]
        try:
            if what == "start":
                held.meant = _provider_parts(pod)
                await self._provider.run(pod)
            else:
                await self._provider.stop(pod, grace=grace)
                held.ended = True
            held.failures = 0
        except Exception as error:  # a provider's failure with one pod must not affect the node
            held.failures += 1
            held.meant = held.meant if what == "end" else ()
            pause = _pause_after(error, what, pod, failures=held.failures)
            held.timer = asyncio.get_running_loop().call_later(pause, self._retry, held, uid)
        finally:
            held.task = None
            self._again(uid)

    async def _end_gone(self, pod: Object) -> None:
        failures = 0
        while True:
            try:
                await self._provider.stop(pod, grace=0.0)
            except Exception as error:  # as above
                failures += 1
                await asyncio.sleep(_pause_after(error, "end", pod, failures=failures))
            else:
                return

    def _retry(self, held: _Held, uid: str) -> None:
        held.timer = None
        self._again(uid)

    def _again(self, uid: str) -> None:
        if not self._closed:
            self._changed(uid)


def _pause_after(error: Exception, what: str, pod: Mapping[str, Any], *, failures: int) -> float:
    """Log a failure, and return the seconds until the next attempt."""
    _log.warning("pod %s/%s could not be %sed: %s", pod["metadata"]["namespace"], pod["metadata"]["name"], what, error)
    return backoff(failures, first=_RETRY, most=_LONGEST_RETRY)


def _provider_parts(pod: Mapping[str, Any]) -> object:
    """Return the parts of a pod that a provider receives; it reports the others itself."""
    return pod["spec"], *(pod["metadata"].get(name) or {} for name in ("labels", "annotations"))
