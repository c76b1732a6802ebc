"""The Lease that a machine holds while it stops its member of etcd or its API server: one machine of a cluster at a time.

kubeadm has no such lock, so the holder still checks the other machines before each stop. The lock of the machine is
taken before it, so that the name of the Node is sufficient to identify holders: a machine that was killed, or lost
power, continues with its lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import AlreadyExists, APIError, Conflict, Forbidden, NotFound
from kubewright.base.events import Reporter, Warned
from kubewright.base.wait import Waiter
from kubewright.kube import lease_rules
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.lease_rules import LeaseTerms, LeaseWatch
from kubewright.kube.resources import LEASE

TERMS: Final = LeaseTerms(name="kubewright-operation", seconds=30.0)
RENEWED_EVERY: Final = 5.0
REQUEST: Final = 5.0
"""The time limit in seconds of each request. A request may hang while etcd elects a leader, and the holder must not lose the lease by that."""
WAITED: Final = 900.0
"""Seconds that a machine waits for its turn."""
_ENDING: Final = 1.0


class OperationLease:
    """The lease of one machine. `identity` is the name of its Node. Safe to use from several threads."""

    def __init__(
        self,
        api: KubeAPI,
        *,
        identity: str,
        clock: Clock,
        waiter: Waiter,
        unanswered: float = inf,
        comes_back: Callable[[], object] | None = None,
    ) -> None:
        """Store the arguments.

        `unanswered` is how many seconds `require` waits for the answer of an API server. After that it calls
        `comes_back`, which waits for the API server of this machine, and raises an error if that does not come back.
        """
        self._api = api
        self._identity = identity
        self._clock = clock
        self._waiter = waiter
        self._unanswered = unanswered
        self._comes_back = comes_back
        self._answered = clock.monotonic()
        self._watch = LeaseWatch(TERMS)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.off = False
        """There is no lease: it may not be written here, or no API server answers."""

    def require(self) -> None:
        """Wait until this machine has the lease.

        Raises WaitTimeout, naming the machine that holds it; if no API server has answered for too long, APIError or
        what `comes_back` raises.
        """
        if not self.off:
            self._waiter.until(
                self._turn,
                within=WAITED,
                saying="this machine's turn",
                every=0.5,
                at_most=2.0,
                remedy=f"let the other machine finish; one that is gone loses the lease {TERMS.namespace}/{TERMS.name} after {TERMS.seconds:.0f} s",
            )

    def renew(self) -> None:
        """Renew the lease until it is released. An API server that is restarted answers again before it expires."""
        while not self._stopped.wait(RENEWED_EVERY):
            with suppress(APIError):
                self._attempt()

    def give_back(self) -> None:
        """Release it, so that another machine can have it at once."""
        self._stopped.set()
        if self.off:
            return
        with suppress(APIError), self._lock:
            found = self._api.get(LEASE, TERMS.name, TERMS.namespace)
            if found["spec"].get(lease_rules.HOLDER) == self._identity:
                self._api.update(lease_rules.given_back(found))

    def _turn(self) -> str | None:
        """Take the lease as `_attempt` does. Without an answer for too long, wait for the API server of this machine."""
        try:
            return self._attempt()
        except Forbidden:
            raise
        except APIError as error:
            if self._comes_back is None:
                raise
            self._comes_back()
            self._answered = self._clock.monotonic()
            return str(error)

    def _attempt(self) -> str | None:
        """Take or renew the lease. Returns why it is not ours, None if it is."""
        try:
            with self._lock:
                problem = self._take()
        except Forbidden:
            raise
        except APIError as error:
            if self._clock.monotonic() - self._answered > self._unanswered:
                raise
            return str(error)
        self._answered = self._clock.monotonic()
        return problem

    def _take(self) -> str | None:
        found: Object = {}
        with suppress(NotFound):
            found = self._api.get(LEASE, TERMS.name, TERMS.namespace)
        spec = found.get("spec") or {}
        if not self._watch.is_free(spec, identity=self._identity, now=self._clock.monotonic()):
            return f"{spec[lease_rules.HOLDER]} is working"
        body = lease_rules.taken(found, TERMS, identity=self._identity, now=self._clock.now())
        try:
            (self._api.update if found else self._api.create)(body)
        except (AlreadyExists, Conflict):
            return "another machine was faster"
        return None


@contextmanager
def held(
    api: KubeAPI,
    *,
    identity: str,
    clock: Clock,
    waiter: Waiter,
    reporter: Reporter,
    unanswered: float = inf,
    comes_back: Callable[[], object] | None = None,
) -> Iterator[OperationLease]:
    """Wait for the lease, and hold it during a block.

    An identity that may not write leases continues without it, with a message; so does every identity when no API
    server has answered for `unanswered` seconds, unless `comes_back` waits for it then, and raises an error.
    """
    lease = OperationLease(api, identity=identity, clock=clock, waiter=waiter, unanswered=unanswered, comes_back=comes_back)
    try:
        lease.require()
    except APIError as error:
        lease.off = True
        reporter.emit(Warned(text=f"other machines are not kept from being changed at the same time: {error}"))
    renewing = threading.Thread(target=lease.renew, name="lease", daemon=True)
    if not lease.off:
        renewing.start()
    try:
        yield lease
    finally:
        lease.give_back()
        if not lease.off:
            renewing.join(_ENDING)


@contextmanager
def held_if_ready(api: KubeAPI | None, *, identity: str, clock: Clock, waiter: Waiter, reporter: Reporter) -> Iterator[None]:
    """Hold the lease during a block; without it, and with a warning, if no API server is ready (`api` is None).

    For operations that have to work without an API server. One that was ready may have lost its etcd since, for example
    by an earlier run that was killed: when it has not answered for as long as a lease lasts, nobody holds one. Raises
    WaitTimeout as `OperationLease` does.
    """
    if api is None:
        text = "no API server is ready, so other machines are not kept from being changed at the same time"
        reporter.emit(Warned(text=text))
        yield
        return
    with held(api, identity=identity, clock=clock, waiter=waiter, reporter=reporter, unanswered=TERMS.seconds):
        yield
