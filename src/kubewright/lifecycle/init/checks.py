"""The phase `preflight` on a real machine: its checks, then the images."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kubewright.apis.kubeadm.image_names import images
from kubewright.base.change import Change
from kubewright.base.events import Checked
from kubewright.host.pulling import Policy, Pull, pull_images
from kubewright.lifecycle.init.context import InitContext
from kubewright.preflight import lists, running
from kubewright.preflight.model import Subject


def preflight(ctx: InitContext) -> Iterable[Change]:
    """Check the machine, all at the same time, and get the images. Where nothing is really done, only the images are named."""
    if ctx.passed is None:
        ctx.say("preflight", "The machine is checked when init really runs, or by `preflight init`")
        ctx.say("preflight", "The container runtime would need these images:\n" + "\n".join(f"\t{image}" for image in images(ctx.cluster)))
        return
    ctx.say("preflight", "Running pre-flight checks")
    registration = ctx.configuration.init.node_registration
    subject = Subject(
        host=ctx.host,
        node=registration,
        addresses=ctx.addresses,
        cluster=ctx.cluster,
        environment=os.environ,
        user=os.geteuid(),
    )
    checks = lists.init(ctx.cluster, ctx.addresses, ctx.layout, resumed=ctx.resumed)
    report = running.run(checks, subject, ignored=registration.ignore_preflight_errors)
    for result in report.results:
        for found in result.warnings:
            ctx.reporter.emit(Checked(check=result.name, text=found.text))
    report.require_passed()
    ctx.passed()
    ctx.say("preflight", "Pulling images required for setting up a Kubernetes cluster")
    how = Pull(policy=Policy(registration.image_pull_policy), serial=registration.image_pull_serial)
    yield from pull_images(images(ctx.cluster), runtime=ctx.host.runtime, how=how, clock=ctx.clock, reporter=ctx.reporter)
