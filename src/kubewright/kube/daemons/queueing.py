"""The work queue of controllers (client-go: util/workqueue): each key once, growing pauses after failures, fairness between owners.

A key that is added while it is being worked on is queued again afterwards. All times are the event loop's. Belongs to
one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from kubewright.http.metrics import Registry

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class RateLimiter(Protocol[K_contra]):
    """Determines how long a failed key waits."""

    def delay(self, key: K_contra, /, *, owner: Hashable = None) -> float:
        """Record a failure and return the pause after it, in seconds."""
        ...

    def forget(self, key: K_contra, /) -> None:
        """Record a success."""
        ...


class ItemBackoff(Generic[K]):
    """A separate pause for each key, which doubles with each failure."""

    def __init__(self, *, first: float, limit: float) -> None:
        self._first = first
        self._limit = limit
        self._failures: dict[K, int] = {}

    def delay(self, key: K, /, *, owner: Hashable = None) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._first * 2.0 ** min(failures, 64), self._limit)

    def forget(self, key: K, /) -> None:
        self._failures.pop(key, None)


class TokenBucket(Generic[K]):
    """One budget for all keys: a rate per second, and a burst (golang.org/x/time/rate)."""

    def __init__(self, *, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._left = float(burst)
        self._seen: float | None = None

    def delay(self, key: K, /, *, owner: Hashable = None) -> float:
        now = asyncio.get_running_loop().time()
        passed = 0.0 if self._seen is None else max(0.0, now - self._seen)
        self._seen = now
        self._left = min(self._burst, self._left + passed * self._rate) - 1
        return max(0.0, -self._left / self._rate)

    def forget(self, key: K, /) -> None:
        return


class BucketPerOwner(Generic[K]):
    """A bucket for each owner, so that failing keys of one owner do not lengthen the pauses of others."""

    def __init__(self, *, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[Hashable, TokenBucket[K]] = OrderedDict()

    def delay(self, key: K, /, *, owner: Hashable = None) -> float:
        bucket = self._buckets.setdefault(owner, TokenBucket(rate=self._rate, burst=self._burst))
        self._buckets.move_to_end(owner)
        while len(self._buckets) > _OWNERS:
            self._buckets.popitem(last=False)
        return bucket.delay(key)

    def forget(self, key: K, /) -> None:
        return


class Slowest(Generic[K]):
    """The longest pause of several limiters."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        self._limiters = limiters

    def delay(self, key: K, /, *, owner: Hashable = None) -> float:
        return max(limiter.delay(key, owner=owner) for limiter in self._limiters)

    def forget(self, key: K, /) -> None:
        for limiter in self._limiters:
            limiter.forget(key)


FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 1000.0
_OWNERS: Final = 1000
"""How many buckets are kept: those of the owners with the latest failures."""


def certificate_limiter() -> RateLimiter[str]:
    """Return the limiter of the certificate controllers: 200 ms to 1,000 s for a key, 10 per second with a burst of 100 for each owner.

    In kube-controller-manager all owners share the second limit.
    """
    return Slowest(ItemBackoff(first=FIRST_PAUSE, limit=LONGEST_PAUSE), BucketPerOwner(rate=10, burst=100))


def default_limiter() -> RateLimiter[str]:
    """Return client-go's default limiter: 5 ms to 1,000 s for a key, 10 per second with a burst of 100 for all keys."""
    return Slowest(ItemBackoff(first=0.005, limit=LONGEST_PAUSE), TokenBucket(rate=10, burst=100))


BUCKETS: Final = tuple(1e-8 * 10**power for power in range(10))
"""Histogram buckets for the durations of work queues, in seconds (component-base: metrics/prometheus/workqueue)."""


class QueueMetrics:
    """The metrics of all work queues of a process, by client-go's names (component-base v1.36: metrics/prometheus/workqueue)."""

    def __init__(self, registry: Registry) -> None:
        label = ("name",)
        self.depth = registry.gauge("workqueue_depth", "Current depth of workqueue", labels=label)
        self.adds = registry.counter("workqueue_adds_total", "Total number of adds handled by workqueue", labels=label)
        self.waited = registry.histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            labels=label,
            buckets=BUCKETS,
        )
        self.worked = registry.histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            labels=label,
            buckets=BUCKETS,
        )
        self.retries = registry.counter("workqueue_retries_total", "Total number of retries handled by workqueue", labels=label)


class _Measured(Generic[K]):
    """The metrics of one queue, updated at the same moments as in client-go. Queues with the same name are counted together."""

    def __init__(self, metrics: QueueMetrics, name: str) -> None:
        self._metrics = metrics
        self._name = name
        self._added: dict[K, float] = {}
        self._taken: dict[K, float] = {}
        metrics.depth.change(0, name)

    def added(self, key: K) -> None:
        self._metrics.adds.add(self._name)
        self._metrics.depth.change(1, self._name)
        self._added.setdefault(key, asyncio.get_running_loop().time())

    def taken(self, key: K) -> None:
        now = asyncio.get_running_loop().time()
        self._metrics.depth.change(-1, self._name)
        self._metrics.waited.observe(now - self._added.pop(key, now), self._name)
        self._taken[key] = now

    def done(self, key: K) -> None:
        now = asyncio.get_running_loop().time()
        self._metrics.worked.observe(now - self._taken.pop(key, now), self._name)

    def retried(self) -> None:
        self._metrics.retries.add(self._name)

    def dropped(self) -> None:
        self._metrics.depth.change(-len(self._added), self._name)
        self._added.clear()


PREFERRED_TURNS: Final = 4
"""Keys of preferred owners that are taken before one of the others: these wait longer, but not forever."""


class _Turns(Generic[K]):
    """Keys by their owners, which take turns."""

    def __init__(self) -> None:
        self._keys: OrderedDict[Hashable, deque[K]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, owner: Hashable, key: K) -> None:
        self._keys.setdefault(owner, deque()).append(key)

    def take(self) -> K:
        owner, keys = next(iter(self._keys.items()))
        key = keys.popleft()
        if keys:
            self._keys.move_to_end(owner)
        else:
            del self._keys[owner]
        return key

    def clear(self) -> None:
        self._keys.clear()


class WorkQueue(Generic[K]):
    """Keys that wait for work. Owners take turns, so that an owner with thousands of keys delays another one by one key only.

    With `metrics` the queue is counted under its name. Of `preferred` owners, `PREFERRED_TURNS` keys are taken for each key
    of the others.
    """

    def __init__(
        self,
        limiter: RateLimiter[K],
        *,
        name: str = "",
        metrics: QueueMetrics | None = None,
        preferred: Callable[[Hashable], bool] = lambda _: False,
    ) -> None:
        self._limiter = limiter
        self._preferred = preferred
        self._measured: _Measured[K] | None = _Measured(metrics, name) if metrics is not None else None
        self._first: _Turns[K] = _Turns()
        self._others: _Turns[K] = _Turns()
        self._taken_first = 0
        self._owners: dict[K, Hashable] = {}
        self._dirty: set[K] = set()
        self._busy: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """Return how many keys are waiting."""
        return len(self._first) + len(self._others)

    def add(self, key: K, *, owner: Hashable = None) -> None:
        """Queue a key for work, unless it is waiting already."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        self._owners[key] = owner
        if self._measured is not None:
            self._measured.added(key)
        if key not in self._busy:
            self._enqueue(key)

    def add_after(self, key: K, seconds: float, *, owner: Hashable = None) -> None:
        """Queue a key later. If it is delayed several times, the earliest time counts."""
        if self._closed:
            return
        if self._measured is not None:
            self._measured.retried()
        if seconds <= 0:
            self.add(key, owner=owner)
            return
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        self._timers[key] = loop.call_later(seconds, self._on_timer, key, owner)

    def retry(self, key: K, *, owner: Hashable = None) -> float:
        """Queue a failed key again after the pause that its failures require, and return the pause in seconds."""
        seconds = self._limiter.delay(key, owner=owner)
        self.add_after(key, seconds, owner=owner)
        return seconds

    def forget(self, key: K) -> None:
        """Record a success: the key's next pause is the shortest one again."""
        self._limiter.forget(key)

    async def get(self) -> K | None:
        """Take a key; the caller must call `done` for it. Returns None once the queue is closed."""
        while not (self._first or self._others):
            if self._closed:
                return None
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # A waiter that was woken but cannot take the key wakes the next one.
                if getter.done() and not getter.cancelled():
                    self._wake()
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise
        return self._take()

    def done(self, key: K) -> None:
        """Report that the work on a key has ended."""
        self._busy.discard(key)
        if self._measured is not None:
            self._measured.done(key)
        if key in self._dirty and not self._closed:
            self._enqueue(key)
        else:
            self._owners.pop(key, None)

    def close(self) -> None:
        """Accept no more keys, and drop those that wait. Idempotent."""
        self._closed = True
        self._first.clear()
        self._others.clear()
        if self._measured is not None:
            self._measured.dropped()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._getters:
            self._wake()

    def _take(self) -> K:
        first = bool(self._first) and (not self._others or self._taken_first < PREFERRED_TURNS)
        self._taken_first = self._taken_first + 1 if first else 0
        key = (self._first if first else self._others).take()
        self._dirty.discard(key)
        self._busy.add(key)
        if self._measured is not None:
            self._measured.taken(key)
        return key

    def _enqueue(self, key: K) -> None:
        owner = self._owners.get(key)
        (self._first if self._preferred(owner) else self._others).add(owner, key)
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _on_timer(self, key: K, owner: Hashable) -> None:
        self._timers.pop(key, None)
        self.add(key, owner=owner)
