"""Removing all pods of a machine, as `reset` does."""

from __future__ import annotations

import threading
from typing import Final

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, KubewrightError, RuntimeSilent
from kubewright.base.records import dataclass
from kubewright.base.retry import Backoff, retry
from kubewright.host.containers import Sandbox
from kubewright.host.failures import expected
from kubewright.host.seam import ContainerRuntime

ATTEMPTS: Final = 12
"""How often each, and their list, is tried. kubeadm's RemoveContainerRetry is 5, without pauses; but a container that is just being started
cannot be removed before it has started, which takes seconds on a busy machine."""
_PAUSES: Final = Backoff(first=0.1, factor=2.0, limit=1.0)

THREADS: Final = 8
"""How many are stopped at the same time: each takes as long as its processes take to end."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What became of one sandbox: a change, or the error of the last attempt."""

    sandbox: Sandbox
    change: Change | None = None
    error: KubewrightError | None = None


def remove_sandboxes(runtime: ContainerRuntime, *, clock: Clock, attempts: int = ATTEMPTS) -> list[Removal]:
    """Stop and remove every sandbox, several at a time; one that cannot be removed does not keep the others.

    Returns them in the order of their list, which is asked for again while the runtime gives no answer. Raises HostError if there is none.
    """
    listed = retry(runtime.sandboxes, clock=clock, on=RuntimeSilent, attempts=attempts, backoff=_PAUSES)
    waiting = dict(enumerate(listed))
    removed: dict[int, Removal] = {}

    def work() -> None:
        while waiting:
            try:
                number, sandbox = waiting.popitem()
            except KeyError:  # another thread took the last one
                return
            removed[number] = _remove(sandbox, runtime=runtime, clock=clock, attempts=attempts)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [removed[number] for number in sorted(removed)]


def _remove(sandbox: Sandbox, *, runtime: ContainerRuntime, clock: Clock, attempts: int) -> Removal:
    def remove() -> Change:
        return runtime.remove_sandbox(sandbox)

    try:
        return Removal(sandbox=sandbox, change=retry(remove, clock=clock, on=HostError, attempts=attempts, backoff=_PAUSES))
    except Exception as error:  # it ends neither this thread nor the others
        return Removal(sandbox=sandbox, error=expected(error))
