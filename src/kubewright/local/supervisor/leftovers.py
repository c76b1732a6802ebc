"""What an earlier daemon left running: found by the mark, adopted where it is still wanted, ended where not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Sequence

from kubewright.base.records import dataclass, field
from kubewright.local.supervisor.identities import Found, Mark, search
from kubewright.local.supervisor.process import Process
from kubewright.local.supervisor.stopping import DOWN, Stage, stages_of

Key = tuple[str, str, str]
"""Which process a container wants: the component's name, the manifest's hash, the launch's digest."""


@dataclass()
class Leftovers:
    """The processes of one machine that nobody watches yet, by pod."""

    _by_pod: dict[str, list[Found]] = field(default_factory=dict)

    @classmethod
    def of(cls, mark: Mark, machine: str) -> Leftovers:
        """Look for a machine's processes; children whose leader has ended are killed at once, nothing can wait for them."""
        found = [one for one in search(mark) if one.machine == machine]
        left = cls()
        for one in _leaders(found):
            left._by_pod.setdefault(pod_of(one.component), []).append(one)
        return left

    def of_pod(self, pod: str) -> list[Found]:
        """Return what is left of a pod."""
        return self._by_pod.get(pod, [])

    @property
    def pods(self) -> list[str]:
        """The pods of which something is left."""
        return sorted(pod for pod, found in self._by_pod.items() if found)

    def take(self, pod: str, key: Key) -> Process | None:
        """Adopt the process of a component, if one runs that was started for this very manifest, program, arguments and environment."""
        for one in self.of_pod(pod):
            if _key(one) == key:
                self._by_pod[pod].remove(one)
                return Process.adopt(one.identity)
        return None

    async def end(self, pod: str, *, grace: float, keep: Collection[Key] = ()) -> None:
        """End what is left of a pod, but for one process of each key in `keep`."""
        unwanted, kept = [], set()
        for one in self.of_pod(pod):
            if _key(one) in keep and _key(one) not in kept:
                kept.add(_key(one))
            else:
                unwanted.append(one)
        await end_all(unwanted, grace=grace)
        for one in unwanted:
            self._by_pod[pod].remove(one)


async def sweep(mark: Mark, *, stages: Sequence[Stage] = DOWN) -> list[str]:
    """Stop every component process of a cluster whose daemon is gone, in the order of `stages`; returns the components' names, sorted.

    For `down`. Changes nothing if none is left. Needs no state file: the processes carry the cluster's mark.
    """
    found = _leaders(search(mark))
    for stage, pods in stages_of(sorted({pod_of(one.component) for one in found}), stages):
        grace = DEFAULT if stage.grace is None else stage.grace
        await end_all((one for one in found if pod_of(one.component) in pods), grace=grace)
    return sorted({one.component for one in found})


DEFAULT = 5.0
"""Seconds of grace where neither a stage nor a manifest names them."""


def pod_of(component: str) -> str:
    """Return the pod of a component."""
    return component.partition("/")[0]


async def end_all(found: Iterable[Found], *, grace: float) -> None:
    """End processes side by side."""
    processes = [process for one in found if (process := Process.adopt(one.identity)) is not None]
    await asyncio.gather(*(process.end(grace) for process in processes))
    for process in processes:
        process.close()


def _key(found: Found) -> Key:
    return (found.component, found.manifest, found.launch)


def _leaders(found: Sequence[Found]) -> list[Found]:
    leaders = {one.identity.pid for one in found if one.leader}
    for one in found:
        if not one.leader and one.group not in leaders:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.identity.pid, signal.SIGKILL)
    return [one for one in found if one.leader]
