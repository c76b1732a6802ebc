"""Clients of a cluster and of its etcd for the mode of a run: real ones, or overlays that only record writes."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kubewright.base.errors import Unreachable, WaitTimeout
from kubewright.base.events import Reporter, Warned
from kubewright.lifecycle.machine import LONG, TargetMachine

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.credentials import Access


class Closable(Protocol):
    """An object with connections that must be closed."""

    def close(self) -> None:
        """Close it."""
        ...


Client = TypeVar("Client", bound=Closable)

StandIns = Iterable[Mapping[str, Any]]
"""Objects that others create in a cluster, for runs in which they do not."""


class Mode(enum.Enum):
    """How an operation runs: for real, as a plan, or in the form of kubeadm's dry run."""

    APPLY = "apply"
    PLAN = "plan"
    NARRATE = "narrate"


class Connections:
    """The connections of a run. Safe to use from several threads; `close` closes what was opened.

    `waits` receives events about waits; `narrates` means that each write is reported in kubeadm's words.
    """

    def __init__(
        self, machine: TargetMachine, *, mode: Mode, reporter: Reporter, waits: Reporter | None = None, narrates: bool = False
    ) -> None:
        self._machine = machine
        self._mode = mode
        self._reporter = reporter
        self._narrates = narrates
        self._lock = threading.RLock()
        self._opened: list[Closable] = []
        self._cluster: KubeAPI | None = None
        self._lost: list[Mapping[str, Any]] | None = None
        self.waits = waits or reporter

    def kube(self, access: Access, *, timeout: float = LONG, proxied: bool = True, stand_ins: StandIns = ()) -> KubeAPI:
        """Return a client of an existing cluster; a plan reads it, and adds the stand-ins."""
        if self._lost is not None:
            return self._over(None, self._lost)
        return self._over(self.keep(self._machine.client(access, timeout=timeout, proxied=proxied)), stand_ins)

    def own(
        self, access: Callable[[], Access], *, observe: Callable[[], KubeAPI | None], stand_ins: StandIns, timeout: float = LONG
    ) -> KubeAPI:
        """Return a client of the cluster that this run creates.

        In a plan, it is shared and shows what `observe` finds of it now.
        """
        if self._mode is Mode.APPLY:
            return self.keep(self._machine.client(access(), timeout=timeout, proxied=False))
        with self._lock:
            if self._cluster is None:
                found = observe()
                self._cluster = self._over(None if found is None else self.keep(found), stand_ins)
            return self._cluster

    def find(self, find: Callable[[], Access], *, instead: Callable[[], tuple[Access, list[Mapping[str, Any]]]]) -> Access:
        """Find a cluster. If none answers, a dry run continues with the stand-ins of `instead`, and a warning."""
        if self._mode is not Mode.NARRATE:
            return find()
        try:
            return find()
        except (Unreachable, WaitTimeout) as error:
            access, stand_ins = instead()
            self.replace_cluster(stand_ins, server=access.server, reason=error.what)
            return access

    def replace_cluster(self, stand_ins: StandIns, *, server: str, reason: str) -> None:
        """Continue a dry run with stand-ins instead of a cluster and its etcd, with a warning that has the reason."""
        self._lost = list(stand_ins)
        self._reporter.emit(Warned(text=f"{reason}; stand-ins at {server} replace the cluster"))

    def etcd(self, reach: Callable[[], Etcd]) -> Etcd:
        """Return a client of etcd, which changes no members in plans and dry runs."""
        if self._mode is Mode.APPLY:
            return self.keep(reach())
        from kubewright.etcd.recording import RecordingEtcd  # not needed for real changes

        return RecordingEtcd(None if self._lost is not None else self.keep(reach()))

    def close(self) -> None:
        """Close all connections that were opened. Idempotent."""
        with self._lock:
            opened, self._opened = self._opened, []
        for client in opened:
            client.close()

    def keep(self, client: Client) -> Client:
        """Also close this one at the end. Returns it."""
        with self._lock:
            self._opened.append(client)
        return client

    def _over(self, base: KubeAPI | None, stand_ins: StandIns) -> KubeAPI:
        if self._mode is Mode.APPLY and base is not None:
            return base
        if self._narrates:
            from kubewright.kube.recording import DryRunKube

            return DryRunKube(base, reporter=self._reporter, stand_ins=stand_ins)
        from kubewright.kube.recording import RecordingKube

        return RecordingKube(base, stand_ins=stand_ins)
