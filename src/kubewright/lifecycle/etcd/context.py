"""What the phases of `etcd restore` and `etcd member replace` work with."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kubewright.base.events import Line, Waited
from kubewright.base.records import dataclass, replace
from kubewright.base.wait import Condition
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.etcd import etcdutl, peers
from kubewright.lifecycle.etcd.request import BackupRestoreOptions, MemberTask, ReplaceOptions, RestoreOptions
from kubewright.lifecycle.operation import Bound
from kubewright.lifecycle.steps import checkpoint, stopping
from kubewright.lifecycle.steps.checkpoint import Checkpoint
from kubewright.lifecycle.steps.health import ComponentWaiter, HealthEndpoint, unready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kubewright.base.clock import Clock
    from kubewright.etcd.api import Etcd, Status
    from kubewright.host.seam import Host
    from kubewright.lifecycle.etcd.archive import Archive
    from kubewright.lifecycle.etcd.this_member import ThisMember
    from kubewright.workflow.phases import Step

Request = TypeVar("Request")
TOPIC: Final = "etcd"
SERVING: Final = 600.0
"""Seconds that etcd and the API server may take to serve. What cannot come up is told earlier."""
STOPPING: Final = 120.0
"""Seconds that they may take to end."""


@dataclass(frozen=True, kw_only=True)
class MemberContext(Generic[Request]):
    """One run of an operation on the member of this machine."""

    bound: Bound
    request: Request
    task: MemberTask

    @property
    def host(self) -> Host:
        """The machine."""
        return self.bound.host

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.bound.clock

    @property
    def member(self) -> ThisMember:
        """The member of this machine."""
        return self.task.member

    @functools.cached_property
    def own(self) -> Etcd:
        """The member of this machine alone."""
        return self.reach(self.member.client_urls[:1])

    def reach(self, urls: Sequence[str]) -> Etcd:
        """Return a client of the members at these URLs."""
        make = lambda: stacked_etcd.client(list(urls), pki=self.member.layout.pki, files=self.host, clock=self.clock)  # noqa: E731
        return self.bound.connections.etcd(make)

    @functools.cached_property
    def status(self) -> Status:
        """How the member of this machine was before anything was done."""
        return self.own.status(self.member.client_urls[0])

    @functools.cached_property
    def components(self) -> ComponentWaiter:
        """What waits for the static pods of this machine."""
        return ComponentWaiter(
            waiter=self.bound.waiter, diagnosis=functools.partial(self.bound.machine.diagnosis, host=self.host), within=SERVING
        )

    @property
    def _named_etcdutl(self) -> str:
        """The path of etcdutl that the user has given."""
        return ""

    @functools.cached_property
    def etcdutl(self) -> str:
        """The path of the program."""
        return self._named_etcdutl or etcdutl.find(
            self.host,
            kubernetes=self.member.kubernetes,
            environment=self.bound.machine.environment,
            reporter=self.bound.reporter,
            clock=self.clock,
        )

    def stopped(self, kept: Checkpoint) -> Iterator[Step]:
        """Take the manifests of etcd and the API server away, and wait until nothing runs from them."""
        self.say(f"Stopping {' and '.join(self.member.pods.names)} of this machine")
        checkpoint.park(self.host, kept)
        yield from stopping.until_gone(self.member.pods, host=self.host, waiter=self.bound.waiter, within=STOPPING)

    def until(self, wrong: Callable[[Status], str | None], *, saying: str) -> Waited:
        """Wait until nothing is wrong with the status of this machine's member."""
        url = self.member.client_urls[0]
        return self.components.until(lambda: wrong(self.own.status(url)), saying=saying, blame=("etcd",), at_most=0.2)

    def api_server(self) -> Iterator[Step]:
        """Wait until the API server of this machine is ready, if there is one."""
        if self.member.api_server:
            self.say("Waiting for the API server to be ready")
            yield self.components.until(self._ready(), saying="the API server to be ready", blame=("etcd", "kube-apiserver"), at_most=0.2)

    def _ready(self) -> Condition:
        """Return what asks the API server: as the administrator, because anonymous requests may be off; without admin.conf, without credentials."""
        path = self.member.layout.kubeconfig("admin")
        if self.host.state(path) is None:
            return self.bound.connections.keep(HealthEndpoint(self.member.api_server, "/readyz"))
        access = replace(load_access(path, read=self.host.read), server=self.member.api_server)
        probe = self.bound.connections.kube(access, proxied=False)
        return lambda: unready(probe)

    def say(self, text: str) -> None:
        """Report one line of progress."""
        self.bound.reporter.emit(Line(topic=TOPIC, text=text))


@dataclass(frozen=True, kw_only=True)
class RestoreContext(MemberContext[RestoreOptions]):
    """One run of `etcd restore`."""

    @property
    def goal(self) -> str:
        """What the new data is made of, in checkpoints and messages."""
        if self.task.snapshot is None:
            return "the data of this member"
        return f"snapshot {self.task.source} (SHA-256 {self.task.snapshot.sha256[:12]})"

    @property
    def _named_etcdutl(self) -> str:
        return self.request.etcdutl


@dataclass(frozen=True, kw_only=True)
class ReplaceContext(MemberContext[ReplaceOptions]):
    """One run of `etcd member replace`."""

    @functools.cached_property
    def cluster(self) -> Etcd:
        """The other members. Raises APIError where none of them answers."""
        return self.bound.connections.etcd(
            lambda: peers.connect(self.host, self.member, given=self.request.endpoints, kube=self.bound.connections.kube, clock=self.clock)
        )


@dataclass(frozen=True, kw_only=True)
class BackupContext(MemberContext[BackupRestoreOptions]):
    """One run of `backup restore`."""

    @property
    def archive(self) -> Archive:
        """What was read of the backup."""
        assert self.task.archive is not None  # `prepare` has read it
        return self.task.archive

    @property
    def _named_etcdutl(self) -> str:
        return self.request.etcdutl


def agreed(question: str, *, yes: bool, ask: Callable[[str], str] | None) -> bool:
    """Ask the user, unless the answer is known."""
    return yes or ask is None or ask(question).strip().lower() in {"y", "yes"}
