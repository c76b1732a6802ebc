"""Removing all pods of a machine, as `reset` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.base.retry import retry, steady
from kubewright.host.containers import Sandbox
from kubewright.host.seam import ContainerRuntime

ATTEMPTS: Final = 5
"""How often each is tried, without a pause between (kubeadm's RemoveContainerRetry)."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What became of one sandbox: a change, or the error of the last attempt."""

    sandbox: Sandbox
    change: Change | None = None
    error: HostError | None = None


def remove_sandboxes(runtime: ContainerRuntime, *, clock: Clock, attempts: int = ATTEMPTS) -> Iterator[Removal]:
    """Stop and remove every sandbox; one that cannot be removed does not keep the others. Raises HostError if they cannot be listed."""
    for sandbox in runtime.sandboxes():
        yield _remove(sandbox, runtime=runtime, clock=clock, attempts=attempts)


def _remove(sandbox: Sandbox, *, runtime: ContainerRuntime, clock: Clock, attempts: int) -> Removal:
    def remove() -> Change:
        return runtime.remove_sandbox(sandbox)

    try:
        return Removal(sandbox=sandbox, change=retry(remove, clock=clock, on=HostError, attempts=attempts, backoff=steady(0)))
    except HostError as error:
        return Removal(sandbox=sandbox, error=error)
