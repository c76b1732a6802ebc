"""`certs renew` as an operation: each certificate that can be renewed is a phase.

Source: kubeadm v1.36: cmd/certs.go, phases/certs/renewal.

`certs renew NAME` runs one of them, `certs renew all` those that the cluster has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass, field
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle.certs import configuration
from kubewright.lifecycle.certs.configuration import GivenConfiguration
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.lifecycle.steps import renewal
from kubewright.lifecycle.steps.renewal import CertificateLocations, Renewal
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.renewal import Terms
from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import ClusterConfiguration
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.machine import TargetMachine

_RESTART: Final = (
    "Done renewing certificates. Restart kube-apiserver, kube-controller-manager, kube-scheduler and etcd:"
    " they keep using the old certificates until then."
)


@dataclass(frozen=True, kw_only=True)
class RenewOptions:
    """The options of `certs renew`.

    `kubeconfig` is '' for admin.conf; `only` names one certificate, or is empty for all.
    """

    given: GivenConfiguration = GivenConfiguration()
    kubeconfig: str = ""
    only: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RenewContext:
    """One run.

    `loaded` is the configuration of the file, None without one; `outcomes` are the results of the certificates.
    """

    bound: Bound
    options: RenewOptions
    loaded: ClusterConfiguration | None
    outcomes: list[Renewal] = field(default_factory=list)

    @functools.cached_property
    def cluster(self) -> ClusterConfiguration:
        """The configuration: that of the file, or else of the cluster."""
        if self.loaded is not None:
            return self.loaded
        return configuration.of_cluster(
            self.options.given, connect=self._connect, reporter=self.bound.reporter, topic="renew", layout=self.bound.host.layout
        )

    def _connect(self) -> KubeAPI | None:
        path = PurePosixPath(self.options.kubeconfig or self.bound.host.layout.kubeconfig("admin"))
        try:
            return self.bound.connections.kube(load_access(path, read=self.bound.host.read))
        except CertificateError:
            return None

    @functools.cached_property
    def places(self) -> CertificateLocations:
        """The locations of the certificates."""
        return CertificateLocations.of(self.bound.host, certificates=PurePosixPath(self.cluster.certificates_dir))

    @property
    def terms(self) -> Terms:
        """Algorithm and lifetime of the new certificates."""
        return Terms.of(self.cluster)


def prepare(request: RenewOptions, machine: TargetMachine) -> Prepared[ClusterConfiguration | None]:
    """Load the file, if there is one. The phases read the cluster. Raises what `load_cluster` raises."""
    here = machine.at(machine.layout)
    if request.given.documents is None:
        return Prepared(configuration=None, host=here, only=request.only)
    loaded = configuration.of_file(request.given, layout=here.layout)
    return Prepared(configuration=loaded.cluster, host=here, warnings=loaded.warnings, only=request.only)


def opening(ctx: RenewContext) -> None:
    """Start to generate the keys. Raises CertificateError if a CA is missing, before anything is renewed."""
    rows = [row for row in renewal.everything() if row.name in ctx.bound.phases and left_out(ctx, row.name) is None]
    renewal.reserve(ctx.places, rows, terms=ctx.terms, keys=ctx.bound.keys)


def left_out(ctx: RenewContext, name: str) -> str | None:
    """Skip certificates that the cluster or this machine does not have, unless they are named.

    Those of an external etcd are managed elsewhere.
    """
    row = renewal.named(name)
    if not ctx.bound.whole:
        return None
    if row not in renewal.renewables(ctx.cluster):
        return "etcd is external"
    return f"there is no {row.file}" if ctx.places.lacks(row) else None


def renew(ctx: RenewContext, name: str) -> Iterable[Change]:
    """Renew a certificate. One that is missing, or whose CA is external, is reported and not an error."""
    sources = IssuingSources(ctx.bound.clock, ctx.bound.machine.random, ctx.bound.keys, ctx.bound.started)
    outcome = renewal.renew(ctx.places, renewal.named(name), terms=ctx.terms, sources=sources)
    ctx.outcomes.append(outcome)
    ctx.bound.report_step(outcome.text)
    return outcome.changes


def closing(ctx: RenewContext) -> None:
    """Report which components must be restarted."""
    if ctx.bound.whole:
        ctx.bound.report_step(f"\n{_RESTART}")
        for outcome in ctx.outcomes:
            if outcome.row.optional:
                ctx.bound.report_step(f"Restart {outcome.row.name.removesuffix('.conf')} as well.")


PHASES: Final[Phases[RenewContext]] = Phases(
    *(
        Phase(
            row.name,
            f"Renew the {row.long_name}",
            run=functools.partial(renew, name=row.name),
            condition=functools.partial(left_out, name=row.name),
        )
        for row in renewal.everything()
    )
)

RENEW: Final = Operation(
    name="certs renew",
    phases=PHASES,
    configure=prepare,
    context=lambda request, loaded, bound: RenewContext(bound=bound, options=request, loaded=loaded),
    opening=opening,
    closing=closing,
    report=lambda result: {"certificates": [outcome.as_map() for outcome in result.context.outcomes]},
)
