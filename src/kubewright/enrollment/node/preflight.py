"""What the phase `preflight` checks before anything is sent: this machine, its two CRI endpoints, and what a VPN needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.types import NodeRegistration
from kubewright.apis.machine import Addresses
from kubewright.apis.node_join_requests import VPN_NETWORKS
from kubewright.base.change import Change
from kubewright.base.errors import APIError, HostError
from kubewright.base.records import replace
from kubewright.enrollment.node.context import until_joined
from kubewright.host import tunnels
from kubewright.lifecycle.steps import preflight
from kubewright.preflight import lists
from kubewright.preflight.checks import Check, Finding, Subject, run_checks

if TYPE_CHECKING:
    from kubewright.enrollment.node.context import NodeJoinContext

_PROBE: Final = "registry.invalid/probe:none"
"""An image that nobody has: asking for it tells that images are kept at an endpoint."""


def checked(ctx: NodeJoinContext) -> Iterable[Change]:
    """Check the machine. What it is made of is kept once it can join. Raises CheckFailed."""
    ctx.say("Running pre-flight checks")
    node = NodeRegistration(name=ctx.join.node, cri_socket=ctx.join.runtime_endpoint)
    subject = Subject(host=ctx.host, node=node, addresses=Addresses.of_machine(""), user=ctx.host.facts.user or 0)
    preflight.require_passed(run_checks(checks(ctx), subject, ignored=ctx.join.ignored), reporter=ctx.bound.reporter)
    ctx.bound.begin()
    return ()


def checks(ctx: NodeJoinContext) -> tuple[Check, ...]:
    """Return the rows."""

    def runtime(_: Subject) -> Iterable[Finding]:
        ctx.host.runtime.version()
        return ()

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
        lists.ROOT,
        Check(name="ServiceManager", find=_service_manager),
        Check(name="ContainerRuntime", find=runtime),
        Check(name="ImageService", find=images),
        Check(name="WireGuard", find=wireguard),
    )


def _gives_vpn(ctx: NodeJoinContext) -> bool:
    """Whether the hub says that it gives this machine a VPN. Where it cannot be asked, the phase that has to says why."""
    try:
        return until_joined(ctx) is None and VPN_NETWORKS in ctx.hub_data
    except APIError:
        return False


def _service_manager(subject: Subject) -> Iterable[Finding]:
    if not subject.host.facts.systemd:
        yield Finding(text="systemd is not the init system of this machine", remedy="join a machine that was booted with systemd")
