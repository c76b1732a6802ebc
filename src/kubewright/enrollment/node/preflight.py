"""The checks of the phase `preflight`, before anything is sent: this machine, its two CRI endpoints, and the requirements of a VPN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.types import NodeRegistration
from kubewright.apis.machine import Addresses
from kubewright.apis.node_join_requests import VPN_NETWORKS
from kubewright.base.change import Change
from kubewright.base.checks import Finding, run_checks
from kubewright.base.errors import APIError, HostError
from kubewright.base.records import replace
from kubewright.enrollment.node.context import until_joined
from kubewright.host.programs import tunnels
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.steps import preflight
from kubewright.preflight import lists
from kubewright.preflight.checks import Check, Subject

if TYPE_CHECKING:
    from kubewright.enrollment.node.context import NodeJoinContext

_PROBE: Final = "registry.invalid/probe:none"
"""An image that does not exist: asking for it shows whether an endpoint serves images."""


def checked(ctx: NodeJoinContext) -> Iterable[Change]:
    """Check the machine, and keep the results for later phases. Raises CheckFailed."""
    ctx.say("Running pre-flight checks")
    _require_passed(ctx, checks(ctx))
    ctx.bound.begin(ctx.layout)
    return ()


def require_fit(ctx: NodeJoinContext) -> None:
    """Require that the kubelet of the hub's answer can start on this machine. Skipped in plans, and without this phase.

    Raises CheckFailed.
    """
    if ctx.bound.mode is Mode.APPLY and "preflight" in ctx.bound.phases:
        _require_passed(ctx, lists.given_kubelet(ctx.checked.kubelet, ctx.checked.version))


def _require_passed(ctx: NodeJoinContext, checks: Sequence[Check]) -> None:
    node = NodeRegistration(name=ctx.join.node, cri_socket=ctx.join.runtime_endpoint)
    subject = Subject(host=ctx.host, node=node, addresses=Addresses.of_machine(""), user=ctx.host.facts.user or 0)
    preflight.require_passed(run_checks(checks, subject, ignored=ctx.join.ignored), reporter=ctx.bound.reporter)


def checks(ctx: NodeJoinContext) -> tuple[Check, ...]:
    """Return the rows."""

    def images(_: Subject) -> Iterable[Finding]:
        machine = ctx.bound.machine
        machine.at(replace(machine.layout, cri_socket=ctx.join.image_endpoint)).runtime.has_image(_PROBE)
        return ()

    def wireguard(subject: Subject) -> Iterable[Finding]:
        if not _gives_vpn(ctx):
            return
        try:
            tunnels.find_programs(subject.host, subject.host.programs)
        except HostError as error:
            yield Finding(text=str(error), remedy=error.remedy)

    return (
        *lists.hub_join(Addresses.of_machine(""), resumed=ctx.bound.resumed or until_joined(ctx) is not None),
        Check(name="ServiceManager", find=_service_manager),
        Check(name="ImageService", find=images),
        Check(name="WireGuard", find=wireguard),
    )


def _gives_vpn(ctx: NodeJoinContext) -> bool:
    """Whether the hub announces a VPN for this machine. If the hub cannot be asked, a later phase reports the reason."""
    try:
        return until_joined(ctx) is None and VPN_NETWORKS in ctx.hub_data
    except APIError:
        return False


def _service_manager(subject: Subject) -> Iterable[Finding]:
    if not subject.host.facts.systemd:
        yield Finding(text="systemd is not the init system of this machine", remedy="join a machine that was booted with systemd")
