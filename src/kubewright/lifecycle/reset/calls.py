"""One call of `reset`, whether it acts, plans or tells: what was asked, what is on the machine, and the run of the phases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.node_types import ResetConfiguration
from kubewright.apis.layout import Layout
from kubewright.base.change import Change
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.events import Warned
from kubewright.base.records import dataclass, replace
from kubewright.host.seam import Host
from kubewright.lifecycle.means import Means
from kubewright.lifecycle.reset.closing import hint
from kubewright.lifecycle.reset.context import ResetContext, Voice
from kubewright.lifecycle.reset.phases import RESET
from kubewright.lifecycle.reset.remains import Remains, Wanted
from kubewright.lifecycle.reset.request import ResetRequest, configure
from kubewright.lifecycle.reset.traces import Traces
from kubewright.lifecycle.reset.trying import Undisturbed
from kubewright.workflow import runner

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.means import Machine

_DEFAULT_PKI: Final = ResetConfiguration().certificates_dir
PATIENCE: Final = 3.0
"""Seconds for one request to the cluster, which may be down."""

_KUBEADM_LAYOUT: Final = Layout()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run did, and what it could not do."""

    changes: tuple[Change, ...]
    failures: tuple[KubewrightError, ...] = ()

    def require_complete(self) -> None:
        """Raise HostError that names everything that failed, if anything did."""
        if self.failures:
            detail = "\n".join(str(error) for error in self.failures)
            remedies = list(dict.fromkeys(error.remedy for error in self.failures if error.remedy))
            again = "then run the same command again: it does what is left"
            cause = ExceptionGroup("what failed", self.failures)
            raise HostError("not everything could be reset", detail=detail, remedy="; ".join([*remedies, again])) from cause


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of `reset` on a machine."""

    request: ResetRequest
    configuration: ResetConfiguration
    host: Host
    remains: Remains
    means: Means

    @classmethod
    def of(cls, request: ResetRequest, *, machine: Machine, means: Means, layout: Layout = _KUBEADM_LAYOUT) -> Call:
        """Load the configuration and look what is on the machine. Warnings are reported.

        Raises as `configure` does, and UsageError for names of phases that do not exist.
        """
        here = machine(layout)
        loaded = configure(request, detected=here.facts.detected)
        RESET.select(only=request.only, skip=loaded.configuration.skip_phases)
        traces = Traces(here)
        host = machine(_places(loaded.configuration, traces.layout, here.layout))
        for warning in (*loaded.warnings, *traces.warnings):
            means.reporter.emit(Warned(text=warning))
        return cls(
            request=request,
            configuration=loaded.configuration,
            host=host,
            remains=_remains(request, loaded.configuration, host, traces, default_pki=here.layout.pki),
            means=means,
        )

    @property
    def phases(self) -> frozenset[str]:
        """The full names of the phases that run."""
        return frozenset(node.name for node in RESET.select(only=self.request.only, skip=self.configuration.skip_phases))


def _named(configuration: ResetConfiguration) -> bool:
    """Whether somebody has named the certificate directory: the default of the configuration cannot be told from none."""
    return configuration.certificates_dir != _DEFAULT_PKI


def _places(configuration: ResetConfiguration, found: Layout, layout: Layout) -> Layout:
    moved = replace(found, pki=PurePosixPath(configuration.certificates_dir)) if _named(configuration) else found
    return replace(moved, cri_socket=configuration.cri_socket or layout.cri_socket)


def _remains(
    request: ResetRequest, configuration: ResetConfiguration, host: Host, traces: Traces, *, default_pki: PurePosixPath
) -> Remains:
    wanted = Wanted(
        temporary=configuration.cleanup_tmp_dir,
        cni=request.cleanup_cni,
        packet_filter=request.cleanup_packet_filter,
        node=request.delete_node,
        whole_pki=_named(configuration) or host.layout.pki == default_pki,
    )
    return Remains(host, traces=traces, wanted=wanted, default_pki=default_pki)


def run(
    call: Call,
    host: Host,
    *,
    remains: Remains,
    voice: Voice,
    examine: Callable[[ResetContext], None],
    connect: Callable[[], KubeAPI],
    reach_etcd: Callable[[ResetContext, tuple[str, ...]], Etcd],
) -> Outcome:
    """Run the phases that were asked for, and say at the end what is left."""
    means = call.means
    reporter = Undisturbed(means.reporter)
    ctx = ResetContext(
        configuration=call.configuration,
        host=host,
        remains=remains,
        clock=means.clock,
        reporter=reporter,
        connect=connect,
        reach_etcd=reach_etcd,
        examine=examine,
        phases=call.phases,
        voice=voice,
    )
    found = runner.run(
        RESET,
        ctx,
        reporter=reporter,
        clock=means.clock,
        only=call.request.only,
        skip=call.configuration.skip_phases,
    )
    if not call.request.only:
        ctx.tell_people(hint(remains.wanted))
    return Outcome(changes=tuple(change for change in found.changes if change), failures=tuple(ctx.failures))
