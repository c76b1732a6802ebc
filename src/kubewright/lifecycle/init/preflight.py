"""The phase `preflight` of init: on a real machine its checks, then the images."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.apis.kubeadm.serving_certificates import STRICT
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.kubeadm.versions import images
from kubewright.apis.machine import Addresses
from kubewright.base.change import Change
from kubewright.base.checks import Report, run_checks
from kubewright.host.seam import Host
from kubewright.lifecycle.init.certificates import reserve_keys
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import preflight
from kubewright.preflight import lists
from kubewright.preflight.checks import Subject


def named(ctx: InitContext) -> Iterable[Change]:
    """Name the images in plans and dry runs, which do not check the machine."""
    ctx.say("preflight", "The machine is checked when init really runs, or by `preflight init`")
    ctx.say("preflight", "The container runtime would need these images:\n" + "\n".join(f"\t{image}" for image in images(ctx.cluster)))
    return ()


def checked(ctx: InitContext) -> Iterable[Change]:
    """Run all checks of the machine concurrently, and pull the images.

    The configuration is stored when both have succeeded. If a run is resumed, the results of the earlier one are not
    problems.
    """
    reserve_keys(ctx)  # they are generated during the checks
    ctx.say("preflight", "Running pre-flight checks")
    report = examine(ctx.configuration, host=ctx.host, user=ctx.host.facts.user, resumed=ctx.bound.resumed)
    preflight.require_passed(report, reporter=ctx.reporter)
    registration = ctx.configuration.init.node_registration
    ours = [ctx.request.controllers_image] if ctx.request.serving_certificates == STRICT else []
    yield from preflight.pull(ctx.cluster, registration, host=ctx.host, clock=ctx.clock, reporter=ctx.reporter, more=ours)
    ctx.bound.begin(ctx.layout)  # not before: after the name of an image that does not exist, another configuration must be possible


def examine(configuration: Configuration, *, host: Host, user: int, resumed: bool = False) -> Report:
    """Run the checks of `init` for a user, given by ID."""
    registration, cluster, endpoint = configuration.init.node_registration, configuration.cluster, configuration.init.local_api_endpoint
    addresses = Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
    subject = Subject(host=host, node=registration, addresses=addresses, cluster=cluster, user=user)
    checks = lists.init(cluster, addresses, host.layout, resumed=resumed)
    return run_checks(checks, subject, ignored=registration.ignore_preflight_errors)
