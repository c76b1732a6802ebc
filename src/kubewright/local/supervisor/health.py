"""Probing one process, from its start to its end: startup, then liveness and readiness side by side.

A cluster is waited for by a person, so the way up is watched closely: until a probe succeeds for the first time it is tried every few
hundredths of a second, whatever its period and initial delay say. Those still decide when a *failure* counts, so a component gets the
same time to come up as under a kubelet: initial delay + failure threshold × period. After the first success the period holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kubewright.base.records import dataclass
from kubewright.local.supervisor.pod import Container, HttpTarget, Probe, TcpTarget
from kubewright.local.supervisor.probing import Outcome

EAGER_REFUSED: Final = 0.025
"""Seconds to the next attempt while nothing listens: an attempt costs 0.2 ms of ours and nothing of theirs."""
EAGER: Final = 0.06
"""Seconds to the next attempt once something answers: with TLS an attempt costs both sides 1 to 2 ms."""
EAGER_TIMEOUT: Final = 1.0
"""Longest attempt before the first success: what hangs while it comes up is asked again."""


class Attempts(Protocol):
    """Who makes probe attempts."""

    def attempt(self, target: HttpTarget | TcpTarget, *, timeout: float) -> Awaitable[Outcome]:
        """Try once."""
        ...


@dataclass(frozen=True, kw_only=True)
class Health:
    """What the probes of a process say now. `reason` is why it is not ready, or why its liveness is in doubt."""

    started: bool = False
    ready: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Condemned:
    """The process has to be ended: its startup or liveness probe failed too often."""

    reason: str
    grace: float | None


@dataclass()
class Tally:
    """Counts the outcomes of one probe. Pure: it is given the time."""

    probe: Probe
    successes: int = 0
    failures: int = 0
    _counted: float | None = None

    def count(self, *, ok: bool) -> None:
        """Take one outcome; a success ends a row of failures and the other way round."""
        self.successes = self.successes + 1 if ok else 0
        self.failures = 0 if ok else self.failures + 1

    def count_at(self, elapsed: float, *, ok: bool) -> None:
        """Take one outcome of many: failures count once a period, the first one after the initial delay."""
        if ok:
            self.count(ok=True)
            return
        self.successes = 0
        due = self.probe.initial_delay if self._counted is None else self._counted + self.probe.period
        if elapsed >= due:
            self._counted = elapsed
            self.failures += 1

    @property
    def passed(self) -> bool:
        """Whether enough successes came in a row."""
        return self.successes >= self.probe.success_threshold

    @property
    def failed(self) -> bool:
        """Whether enough failures came in a row."""
        return self.failures >= self.probe.failure_threshold


class Watcher:
    """Watches one process by the probes of its container and tells about every change."""

    def __init__(self, container: Container, prober: Attempts, *, changed: Callable[[Health], None], running_for: float = 0.0) -> None:
        """`running_for` is how many seconds the process runs already, if it was adopted."""
        self._container = container
        self._prober = prober
        self._changed = changed
        self._health = Health()
        self._begun = asyncio.get_running_loop().time() - running_for

    async def watch(self) -> Condemned:
        """Probe until the process has to be ended, which may be never. Cancelling is safe at any time."""
        startup, liveness, readiness = self._container.startup, self._container.liveness, self._container.readiness
        if startup is not None and (verdict := await self._start_up(startup)) is not None:
            return verdict
        self._tell(started=True, ready=readiness is None, reason="" if readiness is None else self._health.reason)
        alive = asyncio.create_task(self._stay_alive(liveness) if liveness is not None else _forever())
        ready = asyncio.create_task(self._stay_ready(readiness) if readiness is not None else _forever())
        try:
            await asyncio.wait({alive, ready}, return_when=asyncio.FIRST_COMPLETED)
            return await (ready if ready.done() else alive)  # readiness only ends by an error of ours
        finally:
            alive.cancel()
            ready.cancel()
            await asyncio.wait({alive, ready})

    async def _start_up(self, probe: Probe) -> Condemned | None:
        tally = Tally(probe)
        while True:
            outcome = await self._prober.attempt(probe.target, timeout=min(probe.timeout, EAGER_TIMEOUT))
            tally.count_at(self._elapsed(), ok=outcome.ok)
            if tally.passed:
                return None
            if tally.failed:
                return Condemned(reason=f"startup probe failed: {outcome.reason}", grace=probe.grace)
            self._tell(reason=outcome.reason)
            await asyncio.sleep(_eager(outcome))

    async def _stay_alive(self, probe: Probe) -> Condemned:
        tally = Tally(probe)
        await asyncio.sleep(max(0.0, probe.initial_delay - self._elapsed()))
        while True:
            outcome = await self._prober.attempt(probe.target, timeout=probe.timeout)
            tally.count(ok=outcome.ok)
            if tally.failed:
                return Condemned(reason=f"liveness probe failed: {outcome.reason}", grace=probe.grace)
            await asyncio.sleep(probe.period)

    async def _stay_ready(self, probe: Probe) -> Condemned:
        tally, before = Tally(probe), True
        while True:
            outcome = await self._prober.attempt(probe.target, timeout=min(probe.timeout, EAGER_TIMEOUT) if before else probe.timeout)
            tally.count(ok=outcome.ok)
            if tally.passed:
                before = False
                self._tell(started=True, ready=True)
            elif not outcome.ok and (before or tally.failed):
                self._tell(started=True, ready=False, reason=outcome.reason)
            await asyncio.sleep(_eager(outcome) if before else probe.period)

    def _tell(self, *, started: bool = False, ready: bool = False, reason: str = "") -> None:
        health = Health(started=started, ready=ready, reason=reason)
        if health != self._health:
            self._health = health
            self._changed(health)

    def _elapsed(self) -> float:
        return asyncio.get_running_loop().time() - self._begun


def _eager(outcome: Outcome) -> float:
    return EAGER_REFUSED if outcome.refused else EAGER


async def _forever() -> Condemned:
    never: asyncio.Future[Condemned] = asyncio.get_running_loop().create_future()
    return await never
