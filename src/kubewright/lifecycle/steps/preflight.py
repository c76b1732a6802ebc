"""Common parts of the phases `preflight`: the result of their checks, and the images and arguments of a control plane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.versions import component_image, images
from kubewright.base.checks import Check, Finding, run_checks
from kubewright.base.errors import HostError
from kubewright.base.events import Checked, Line, Warned

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.arguments import Given
    from kubewright.apis.kubeadm.types import ClusterConfiguration, Configuration, NodeRegistration
    from kubewright.apis.machine import Layout
    from kubewright.base.change import Change
    from kubewright.base.checks import Report
    from kubewright.base.clock import Clock
    from kubewright.base.events import Reporter
    from kubewright.host.seam import Host

IMAGE_PULL: Final = "ImagePull"
"""The name of the check that an image which cannot be pulled does not pass."""
_PULLING: Final = (
    "Pulling images required for setting up a Kubernetes cluster",
    "This might take a minute or two, depending on the speed of your internet connection",
    "You can also perform this action beforehand using 'kubewright config images pull'",
)


def require_passed(report: Report, *, reporter: Reporter) -> None:
    """Report the warnings of the checks, and the evidence of those that found errors. Raises PreflightFailed for errors."""
    for result in report.results:
        if result.evidence:
            reporter.emit(Line(topic="preflight", text=result.evidence))
        for found in result.warnings:
            reporter.emit(Checked(check=result.name, text=found.text))
    report.require_passed()


def pull(
    cluster: ClusterConfiguration,
    registration: NodeRegistration,
    *,
    host: Host,
    clock: Clock,
    reporter: Reporter,
    topic: str = "preflight",
    more: Sequence[str] = (),
) -> Iterable[Change]:
    """Pull the images of a control plane as configured in its node registration, and `more` than kubeadm's.

    This is announced with the topic. All images are tried. Raises CheckFailed if some cannot be pulled, or warns if the node registration ignores the
    check ImagePull: the kubelet pulls what is missing. Also warns of a sandbox image of the runtime that is not the
    cluster's, unless the policy is Never. Source: kubeadm v1.36: preflight/checks.go (RunPullImagesCheck).
    """
    from kubewright.host.cri.images_and_sandboxes import Pull, PullPolicy, pull_images  # a worker pulls none

    for text in _PULLING:
        reporter.emit(Line(topic=topic, text=text))
    how = Pull(policy=PullPolicy(registration.image_pull_policy), serial=registration.image_pull_serial, tries_all=True)
    if how.policy is not PullPolicy.NEVER:
        _warn_of_another_sandbox_image(component_image(cluster, "pause"), host=host, reporter=reporter)
    try:
        yield from pull_images([*images(cluster), *more], runtime=host.runtime, how=how, clock=clock, reporter=reporter)
    except HostError as error:
        found = [Finding(text=str(error), remedy=error.remedy)]
        failed = Check[None](name=IMAGE_PULL, find=lambda _: found)
        require_passed(run_checks([failed], None, ignored=registration.ignore_preflight_errors, in_order=True), reporter=reporter)


def _warn_of_another_sandbox_image(wanted: str, *, host: Host, reporter: Reporter) -> None:
    with suppress(HostError):  # the pull reports a runtime that does not answer
        if (found := host.runtime.sandbox_image()) not in ("", wanted):
            reporter.emit(
                Warned(text=f"the container runtime runs pods with the sandbox image {found}; set it to {wanted}, which is pulled for it")
            )


def argument_warnings(given: Iterable[Given], *, configuration: Configuration, layout: Layout, host: Host) -> list[str]:
    """Return the warnings about arguments of components in the version of a configuration. Nothing is written.

    `layout` has the directories of the configuration.
    """
    from kubewright.manifests import extra_arguments as rules  # most configurations have no arguments

    def exists(path: str) -> bool:
        """Return whether a path exists; one that cannot be checked counts as existing, as in kubeadm."""
        try:
            return host.state(PurePosixPath(path)) is not None
        except HostError:
            return True

    around = rules.Surroundings(configuration=configuration, layout=layout, look=lambda: host.facts.detected, exists=exists)
    return rules.warnings(given, around)
