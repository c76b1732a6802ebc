"""The contexts of `etcd restore`, `etcd member replace` and `backup restore`: one run on the member of this machine."""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar
from urllib.parse import urlsplit

from kubewright.apis.machine import url
from kubewright.base.errors import CheckFailed, KubewrightError, UsageError, WaitTimeout
from kubewright.base.events import Line, Waited, Warned
from kubewright.base.records import dataclass, replace
from kubewright.base.wait import Condition
from kubewright.etcd import alarms, voters
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.etcd import etcdutl, peers
from kubewright.lifecycle.etcd.request import BackupRestoreOptions, DataOptions, MemberOptions, MemberTask, ReplaceOptions, RestoreOptions
from kubewright.lifecycle.etcd.this_member import REPLACE, RESTORE, RESTORE_BACKUP
from kubewright.lifecycle.machine import LONG
from kubewright.lifecycle.operation import Bound, RunContext
from kubewright.lifecycle.steps import checkpoint, operation_lease, stopping
from kubewright.lifecycle.steps.checkpoint import Checkpoint, State
from kubewright.lifecycle.steps.health import ComponentWaiter, HealthEndpoint, unready, unready_once_started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kubewright.etcd.api import Etcd, Status
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.etcd.archive import Archive
    from kubewright.lifecycle.etcd.this_member import ThisMember
    from kubewright.workflow.phases import Step

Request = TypeVar("Request", bound=MemberOptions)
DataRequest = TypeVar("DataRequest", bound=DataOptions)
TOPIC: Final = "etcd"
SERVING: Final = 600.0
"""Seconds until etcd and the API server must serve. Failures that waiting cannot help with are reported earlier."""
STOPPING: Final = 120.0
"""Seconds until they must have stopped."""
_STARTING: Final = 60.0
"""Seconds for etcd, or for the API server, to be ready if it may just have been started."""
_ANSWERS: Final = 5.0
"""Seconds for the answer of an API server that may be down."""


@dataclass(frozen=True, kw_only=True)
class MemberContext(RunContext, Generic[Request]):
    """One run of an operation on the member of this machine."""

    request: Request
    task: MemberTask

    @classmethod
    def of(cls, request: Request, task: MemberTask, bound: Bound) -> Self:
        """Return the context of a run."""
        return cls(bound=bound, request=request, task=task)

    @property
    def member(self) -> ThisMember:
        """The member of this machine."""
        return self.task.member

    @functools.cached_property
    def own(self) -> Etcd:
        """A client of this member alone."""
        return self.reach(self.member.client_urls[:1])

    def reach(self, urls: Sequence[str]) -> Etcd:
        """Return a client of the members at these URLs."""
        make = lambda: stacked_etcd.client(list(urls), pki=self.member.layout.pki, files=self.host, clock=self.clock)  # noqa: E731
        return self.bound.connections.etcd(make)

    @functools.cached_property
    def status(self) -> Status:
        """The status of this member before anything was changed."""
        return self.now()

    def now(self) -> Status:
        """Return the present status of this member."""
        return self.own.status(self.member.client_urls[0])

    @functools.cached_property
    def components(self) -> ComponentWaiter:
        """The waiter for the static pods of this machine."""
        return ComponentWaiter(
            waiter=self.waiter, diagnosis=functools.partial(self.bound.machine.diagnosis, host=self.host), within=SERVING
        )

    @functools.cached_property
    def cluster_api(self) -> KubeAPI | None:
        """The administrator's client of an API server that is ready; None if there is none."""
        return None if self._ready_server is None else self.administrator(self._ready_server)

    @functools.cached_property
    def lease_api(self) -> KubeAPI | None:
        """The same client for the lease of operations."""
        return None if self._ready_server is None else self.administrator(self._ready_server, timeout=operation_lease.REQUEST)

    @functools.cached_property
    def _ready_server(self) -> str | None:
        """The URL of an API server that is ready.

        If an earlier run has removed the manifest of this machine's etcd, its API server may still say that it is ready.
        """
        try:
            access = load_access(self.host.layout.kubeconfig("admin"), read=self.host.read)
        except KubewrightError:
            return None
        for server in self.other_servers():
            if unready(self.administrator(server, timeout=_ANSWERS)) is None:
                return server
        if self.host.state(self.member.layout.manifest("etcd")) is None:
            return None
        own = self.administrator(access.server, timeout=_ANSWERS)
        return access.server if unready_once_started(own, waiter=self.waiter, within=_STARTING) is None else None

    def administrator(self, server: str, *, timeout: float = LONG) -> KubeAPI:
        """Return the administrator's client of the API server at a URL. Raises as `load_access` does."""
        access = load_access(self.host.layout.kubeconfig("admin"), read=self.host.read)
        return self.bound.connections.kube(replace(access, server=server), timeout=timeout)

    def other_servers(self) -> Sequence[str]:
        """Return the URLs of API servers that are preferred to that of admin.conf."""
        return ()

    def begun(self, operation: str) -> Checkpoint | None:
        """Return the checkpoint of an interrupted run of an operation."""
        found = checkpoint.unfinished(checkpoint.every(self.host))
        return found if found is not None and found.operation == operation else None

    def finished(self, operation: str, goal: str) -> Checkpoint | None:
        """Return the checkpoint of the last finished run with the same goal; None if there is none, or an interrupted run."""
        checkpoints = checkpoint.every(self.host)
        same = [one for one in checkpoints if (one.operation, one.goal, one.state) == (operation, goal, State.DONE)]
        return same[-1] if same and checkpoint.unfinished(checkpoints) is None else None

    def is_made_by(self, run: Checkpoint) -> bool:
        """Return whether etcd still is the cluster with one member that a run has made."""
        made = etcdutl.cluster_id(self.member, token=run.directory.name)
        return self.now().cluster_id == made and len(self.own.members(agreed=False)) == 1

    def confirm(self, question: str, *, topic: str = TOPIC) -> None:
        """Ask the user whether to continue, unless the request contains the answer.

        Raises UsageError for any answer but yes.
        """
        request = self.request
        if request.yes or request.ask is None:
            return
        if request.ask(f"{question}\n[{topic}] Continue? [y/N]: ").strip().lower() not in {"y", "yes"}:
            raise UsageError("nothing was changed: the answer was not y", remedy="answer y, or use --yes")

    def stopped(self, kept: Checkpoint) -> Iterator[Step]:
        """Remove the manifests of etcd and the API server, and wait until both have stopped."""
        self.say(f"Stopping {' and '.join(self.member.pods.names)} of this machine")
        checkpoint.park(self.host, kept)
        yield from stopping.until_gone(self.member.pods, host=self.host, clock=self.clock, waiter=self.waiter, within=STOPPING)

    def until(self, wrong: Callable[[Status], str | None], *, saying: str) -> Waited:
        """Wait until `wrong` finds no fault with the status of this member."""
        return self.components.until(lambda: wrong(self.now()), saying=saying, blame=("etcd",), at_most=0.2)

    def api_server(self) -> Iterator[Step]:
        """Wait until the API server of this machine is ready, if there is one."""
        if self.member.api_server:
            self.say("Waiting for the API server to be ready")
            yield self.components.until(
                self.own_server_ready, saying="the API server to be ready", blame=("etcd", "kube-apiserver"), at_most=0.2
            )

    @functools.cached_property
    def own_server_ready(self) -> Condition:
        """The readiness of this machine's API server.

        The request is made as the administrator, because anonymous requests may be disabled; anonymously without
        admin.conf.
        """
        path = self.member.layout.kubeconfig("admin")
        if self.host.state(path) is None:
            return self.bound.connections.keep(HealthEndpoint(self.member.api_server, "/readyz"))
        access = replace(load_access(path, read=self.host.read), server=self.member.api_server)
        probe = self.bound.connections.kube(access, proxied=False)
        return lambda: unready(probe)

    def say(self, text: str) -> None:
        """Report one line of progress."""
        self.reporter.emit(Line(topic=TOPIC, text=text))


@dataclass(frozen=True, kw_only=True)
class DataContext(MemberContext[DataRequest], Generic[DataRequest]):
    """One run of an operation that gives etcd other data."""

    @functools.cached_property
    def etcdutl(self) -> str:
        """The path of the program. Raises CheckFailed for one of another minor release than etcd's."""
        program = self.request.etcdutl or etcdutl.find(
            self.host,
            kubernetes=self.member.kubernetes,
            environment=self.bound.machine.environment,
            reporter=self.reporter,
            clock=self.clock,
        )
        etcdutl.require_minor_of(self.member.version, self.host, program)
        return program

    def warn_of_alarms(self) -> None:
        """Warn of alarms in the data, which is that of former members: the API server needs writes to become ready."""
        raised = alarms.reported([self.now()])
        if raised:
            self.reporter.emit(Warned(text="; ".join((*alarms.described(raised, ()), alarms.remedy(raised)))))


@dataclass(frozen=True, kw_only=True)
class RestoreContext(DataContext[RestoreOptions]):
    """One run of `etcd restore`."""

    @property
    def goal(self) -> str:
        """The source of the new data, for checkpoints and messages."""
        if self.task.snapshot is None:
            return "the data of this member"
        return f"snapshot {self.task.source} (SHA-256 {self.task.snapshot.sha256[:12]})"

    @functools.cached_property
    def restored(self) -> Checkpoint | None:
        """The checkpoint of a finished run after which nothing is left to do.

        Raises CheckFailed if there was a run, and etcd does not answer: restoring it once more might lose new data.
        """
        found = None if self.request.again else self.finished(RESTORE, self.goal)
        if found is None:
            return None
        with suppress(WaitTimeout):
            self.waiter.until(lambda: self.now().problem or None, within=_STARTING, saying="etcd to answer")
        if problem := self.now().problem:
            raise CheckFailed(
                f"it is unknown whether etcd still is the cluster that was made from {self.goal}",
                detail=f"{found.directory} is that of a finished restore, and etcd does not answer: {problem}",
                remedy="run the same command again when etcd serves; --again restores it once more",
            )
        return found if self.is_made_by(found) else None


@dataclass(frozen=True, kw_only=True)
class ReplaceContext(MemberContext[ReplaceOptions]):
    """One run of `etcd member replace`."""

    @functools.cached_property
    def cluster(self) -> Etcd:
        """A client of the other members. Raises APIError if none of them answers."""
        return self.bound.connections.etcd(
            lambda: peers.connect(self.host, self.member, given=self.request.endpoints, kube=self.bound.connections.kube, clock=self.clock)
        )

    @functools.cached_property
    def replaced(self) -> bool:
        """Whether the last operation on this machine was a finished replacement, after which nothing is left to do.

        A run may be killed after its last change, so that nobody has seen its end.
        """
        last = checkpoint.every(self.host)[-1:]
        if self.request.again or [(one.operation, one.state) for one in last] != [(REPLACE, State.DONE)]:
            return False
        with suppress(WaitTimeout):
            self.waiter.until(self.unlike_others, within=_STARTING, saying="etcd to answer")
        return self.unlike_others() is None

    def unlike_others(self) -> str | None:
        """Return what this member lacks, or how its data differs from that of another one; None if it does not."""
        own = self.now()
        if not own.serves or own.learner:
            return own.reason or "it has no vote yet"
        return voters.unlike_others(self.cluster, own.endpoint)

    def other_servers(self) -> Sequence[str]:
        """Return the URLs of API servers next to the other members: that of this machine is going to be stopped."""
        port = urlsplit(self.member.api_server).port
        hosts = [urlsplit(one.endpoint).hostname for one in self.cluster.statuses() if one.serves]
        return [url(host, port) for host in hosts if host and port]


@dataclass(frozen=True, kw_only=True)
class BackupContext(DataContext[BackupRestoreOptions]):
    """One run of `backup restore`."""

    @property
    def archive(self) -> Archive:
        """The content of the backup except for the snapshot."""
        assert self.task.archive is not None  # `prepare` has read it
        return self.task.archive

    @property
    def goal(self) -> str:
        """The backup, for checkpoints and messages."""
        return f"the backup of {self.task.description.get('time')}"

    @functools.cached_property
    def restored(self) -> Checkpoint | None:
        """The checkpoint of a finished run after which nothing is left to do."""
        found = self.finished(RESTORE_BACKUP, self.goal)
        return found if found is not None and self.is_made_by(found) else None
