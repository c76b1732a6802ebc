"""The supervisor: one per local machine, in the cluster's daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.events import Reporter
from kubewright.local.supervisor.model import ComponentState, NodeFacts, ProbeIdentity
from kubewright.local.supervisor.stopping import DOWN, ORDERLY, Stage


class Supervisor:
    """Runs the static pods of a manifest directory as processes.

        constructed ── start() ──> supervising ── stop() ─────> stopped    every process ended, nothing left in `run`
                                        │
                                        └───── release() ──> released      the processes go on, for the next supervisor to adopt

    A new manifest is started, a changed one restarted, a removed one stopped; a broken one changes nothing but the reported reason.
    Processes outlive a supervisor that dies: the next one with the same `marker` and `node` adopts those whose manifest is still the
    same and stops the others. `stop` and `release` may be called at any time and more than once.
    """

    def __init__(
        self,
        manifests: Path,
        run: Path,
        logs: Path,
        programs: Mapping[str, Path],
        *,
        node: NodeFacts,
        marker: str,
        reporter: Reporter,
        probe_identity: ProbeIdentity | None = None,
        after: Mapping[str, Collection[str]] | None = None,
        clock: Clock | None = None,
        decode: Callable[[bytes, str], object] | None = None,
    ) -> None:
        """Keep the arguments; nothing happens before `start`.

        `manifests`, `run` (state files and working directories) and `logs` are directories, made with mode 0700 where missing.
        `programs` maps the program names of manifests (`etcd`) to executables. `marker` is the value of KUBEWRIGHT_CLUSTER that all
        processes carry: the cluster's state directory. `after` names for a pod those that have to be ready before it is started,
        as far as they have a manifest. `decode` reads a manifest (content, file name); base.yaml by default.
        """
        self._clock = clock or SystemClock()

    async def start(self) -> None:
        """Adopt what an earlier supervisor left, start what the manifests ask for, and go on watching. Returns without waiting for readiness."""
        raise NotImplementedError

    async def stop(self, stages: Sequence[Stage] = ORDERLY) -> None:
        """Stop every process, stage after stage (`DOWN` for a quick end), and the watching."""
        raise NotImplementedError

    async def release(self) -> None:
        """Stop watching and leave the processes alone."""
        raise NotImplementedError

    def snapshot(self) -> list[ComponentState]:
        """Return the state of every component, sorted by name, with memory and CPU time as of now."""
        raise NotImplementedError

    def changes(self) -> AsyncIterator[list[ComponentState]]:
        """Yield a snapshot at once, and another whenever a component's phase, pid or reason changed. Ends when the supervisor does."""
        raise NotImplementedError

    async def wait_ready(self, names: Collection[str], *, within: float) -> None:
        """Wait until all these pods are ready; a pod whose manifest is not there yet is waited for.

        Raises ComponentFailed, with its last words, as soon as one cannot become ready: its manifest is refused, or it ended three times
        in a row. Raises WaitTimeout with each one's state otherwise.
        """
        raise NotImplementedError

    def last_words(self, name: str, *, lines: int = 20) -> list[str]:
        """Return the last lines that a component wrote: of the process that ended last, if it is not well now. Empty if there are none."""
        raise NotImplementedError

    def read_log(self, name: str, *, tail: int | None = None, since: datetime | None = None, follow: bool = False) -> AsyncIterator[bytes]:
        """Yield the lines of a component's log, line ends included, rotated parts first.

        `tail` keeps the last lines only, `since` those from a time on (as far as lines carry one); `follow` goes on until the component
        is stopped, over rotations. Raises KeyError if there is no such component and no log of it.
        """
        raise NotImplementedError


async def sweep(marker: str, *, stages: Sequence[Stage] = DOWN) -> list[str]:
    """Stop every component process of a cluster whose daemon is gone; returns their names. For `down`; changes nothing if none is left."""
    raise NotImplementedError
