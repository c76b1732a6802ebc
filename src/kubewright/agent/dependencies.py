"""The dependencies of an agent: connections, clock, randomness, reporter, intervals, and its optional duties.

The intervals are those of the kubelet of the Kubernetes 1.36 line, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.randomness import Random, SystemRandom
from kubewright.base.records import dataclass, field, replace
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.credentials import Access

Connect = Callable[[Access], AsyncKubeClient]
"""Makes a client for an access; opens no connection."""


def connect(access: Access) -> AsyncKubeClient:
    """Make the client of a node, with the kubelet's field manager."""
    return AsyncKubeClient(access, field_manager="kubelet")


@dataclass(frozen=True, kw_only=True)
class Seams:
    """Connections, time, randomness and a reporter. The defaults are the real ones, with a silent reporter."""

    connect: Connect = connect
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    reporter: Reporter = field(default_factory=SilentReporter)


@dataclass(frozen=True, kw_only=True)
class Timings:
    """The intervals of one agent. "Jitter j" means: the value times (1 + j U), with U uniform in [0, 1) and drawn again each time."""

    registration_first: float = 0.1
    """The wait before the first registration attempt; it doubles before each further one."""
    registration_most: float = 7.0
    status_update: float = 10.0
    """How often status is computed (not how often it is sent), counted from the end of a round."""
    status_jitter: float = 0.04
    status_report: float = 300.0
    """How often status is sent when nothing changed."""
    status_attempts: int = 5
    lease_duration: int = 40
    lease_fraction: float = 0.25
    """A lease is renewed after this part of its duration."""
    lease_jitter: float = 0.04
    lease_attempts: int = 5
    lease_backoff_first: float = 0.2
    lease_backoff_most: float = 7.0
    absence: float = 10.0
    """How long a deleted Node that is registered again stays away: between this and twice as long."""
    spread_start: bool = False
    """Draw the first wait between two renewals from the whole period.

    Nodes that start together would otherwise drift apart only over hundreds of periods.
    """
    certificate_wait: float = 900.0
    """How long to wait for one certificate request."""
    certificate_retry_first: float = 2.0
    """The first wait after a failed rotation attempt; it doubles each time up to `certificate_retry_most`."""
    certificate_retry_most: float = 32.0
    certificate_retry_jitter: float = 0.1
    certificate_refused_most: float = 1800.0
    """The longest wait after a refusal: each request is another object, and another decision for an approver."""
    certificate_lifetime: int | None = None
    """The requested certificate lifetime in seconds; None leaves it to the signer, as a kubelet does."""
    pod_cidr_first: float = 0.03
    """How soon a new node looks for its pod CIDR; the wait doubles up to `pod_cidr_most`. A kubelet watches instead."""
    pod_cidr_most: float = 0.2
    pod_cidr_later: float = 1.0
    """The wait between status rounds while a node that was registered less than `pod_cidr_patience` ago has no pod CIDR. With the jitter of
    status."""
    pod_cidr_patience: float = 120.0

    @classmethod
    def prompt(cls) -> Timings:
        """Return the timings of local clusters, where a user waits for the nodes and many nodes share a process.

        The first registration attempt does not wait, a refused certificate request is soon repeated (the control plane
        may just be starting), and renewals are spread from the start.
        """
        return replace(cls(), registration_first=0.0, certificate_retry_first=0.05, spread_start=True)

    def registration_wait(self, attempt: int) -> float:
        """Return the wait before a registration attempt, counted from 1: 100, 200, 400 ms ... 6.4 s, then always 7 s."""
        if self.registration_first == 0.0:
            return 0.0 if attempt == 1 else Timings().registration_wait(attempt - 1)
        return backoff(attempt, first=self.registration_first, most=self.registration_most)

    def status_wait(self, random: Random) -> float:
        """Return the wait between the end of a status round and the next."""
        return self.status_update * self._status_spread(random)

    def pod_cidr_wait(self, random: Random) -> float:
        """Return the wait between status rounds for a new node that has no pod CIDR yet."""
        return self.pod_cidr_later * self._status_spread(random)

    def _status_spread(self, random: Random) -> float:
        return 1 + self.status_jitter * random.uniform()

    def lease_wait(self, random: Random) -> float:
        """Return the wait between the end of a lease round and the next: 10.0 to 10.4 s by default."""
        return self.lease_duration * self.lease_fraction * (1 + self.lease_jitter * random.uniform())

    def absence_wait(self, random: Random) -> float:
        """Return the wait before a deleted Node is registered again."""
        return self.absence * (1 + random.uniform())

    def lease_backoff(self, attempt: int) -> float:
        """Return the wait after a failed look-up of a lease; `attempt` counts from 1."""
        return backoff(attempt, first=self.lease_backoff_first, most=self.lease_backoff_most)

    def certificate_retry(self, attempt: int, random: Random, *, refusals: int = 0) -> float:
        """Return the wait after a failed rotation attempt, counted from 1.

        `refusals` is how many of the last ones were refused.
        """
        wait = (
            backoff(refusals, first=self.certificate_retry_first, most=self.certificate_refused_most)
            if refusals
            else backoff(attempt, first=self.certificate_retry_first, most=self.certificate_retry_most)
        )
        return wait * (1 + self.certificate_retry_jitter * random.uniform())


@dataclass(frozen=True, kw_only=True)
class Duties:
    """The duties of an agent besides its Node's status and Lease.

    The defaults are those of local clusters' nodes.
    """

    registers: bool = True
    """Create the Node; otherwise wait until it exists."""
    csi_node: bool = False
    """Publish the CSINode; the node is ready only with it."""
    rotates: bool = True
    """Rotate the client certificate before it expires."""
    kubeconfig_at_once: bool = False
    """Write the node's kubeconfig before there is a certificate."""
    events: bool = False
    """Send events about the Node when the agent starts and when conditions flip."""
    returns: bool = False
    """Register again when the Node has been deleted; a kubelet does that only at its start."""


def backoff(attempt: int, *, first: float, most: float) -> float:
    """Return `first` doubled for each attempt after the first, at most `most`; attempts count from 1."""
    return min(first * 2.0 ** min(attempt - 1, 64), most)
