"""Checks of components that must match the cluster's version: the kubelet, its service, the container runtime, this program."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kubewright.base.checks import Finding, warning
from kubewright.base.errors import RuntimeUnavailable
from kubewright.base.versions import OWN, Version
from kubewright.preflight.checks import Subject

SERVICE: Final = "kubelet"
SKEW: Final = 3
"""Minor releases that a kubelet may be older than we are."""
_VERSION: Final = re.compile(r"v\d+\.\d+\.\d+\S*")


def kubelet_version(subject: Subject) -> Version | None:
    """Return the version that the machine's kubelet says it has, None where it says none. Raises HostError where it does not start."""
    found = _VERSION.search(subject.host.programs.version(SERVICE))
    return Version.parse(found[0]) if found else None


def kubelet_fits(subject: Subject) -> Iterable[Finding]:
    """The kubelet must not be too old for this program, nor newer than the control plane."""
    found = kubelet_version(subject)
    if found is None:
        yield Finding(
            text="couldn't get kubelet version: it prints none", remedy="install the kubelet, of the version that the cluster has"
        )
        return
    if (found.major, found.minor) < (OWN.major, OWN.minor - SKEW):
        yield Finding(
            text=f"Kubelet version {found} is lower than this program supports. Please upgrade the kubelet",
            remedy=f"install a kubelet of v{OWN.major}.{OWN.minor - SKEW} or later",
        )
    wanted = Version.parse(subject.cluster.kubernetes_version) if subject.cluster is not None else None
    if wanted is not None and (found.major, found.minor) > (wanted.major, wanted.minor):
        yield Finding(
            text=f"the kubelet version is higher than the control plane version: kubelet {found}, control plane {wanted}",
            remedy=f"install a kubelet of v{wanted.major}.{wanted.minor}, or name a later --kubernetes-version",
        )


def kubelet_service(subject: Subject) -> Iterable[Finding]:
    """The kubelet must be started with the machine. A unit that no package has brought is installed later."""
    found = subject.host.service(SERVICE)
    if found is None and subject.host.facts.systemd and subject.host.programs.path(SERVICE) is not None:
        return
    if found is None:
        yield warning(
            "no service manager of this machine knows a kubelet service",
            remedy="install the kubelet's package, or start it yourself when told to",
        )
    elif not found.enabled:
        yield warning("kubelet service is not enabled", remedy="run `systemctl enable kubelet.service`")


def kubernetes_version(subject: Subject) -> Iterable[Finding]:
    """A control plane of a later minor release has flags and objects that we do not know."""
    if subject.cluster is None:
        return
    wanted = Version.parse(subject.cluster.kubernetes_version)
    if (wanted.major, wanted.minor) > (OWN.major, OWN.minor):
        yield warning(
            f"Kubernetes version is greater than the version of this program. Kubernetes version: {wanted}. Own version:"
            f" {OWN.major}.{OWN.minor}.x",
            remedy=f"use a kubewright for v{wanted.major}.{wanted.minor}, or name a --kubernetes-version of v{OWN.major}.{OWN.minor}",
        )


def runtime_answers(subject: Subject) -> Iterable[Finding]:
    """The runtime must answer and be able to start containers.

    Its network is not checked, because it is never ready before there is a cluster.
    """
    unready = subject.host.runtime.status().unready
    if unready is not None:
        yield Finding(
            text=f"container runtime is not ready: {unready.reason}: {unready.message}",
            remedy="fix it; its own log says more (`journalctl -u containerd`)",
        )


def runtime_version(subject: Subject) -> Iterable[Finding]:
    """A runtime that does not tell its cgroup driver has to be replaced before the next kubelets."""
    try:
        driver = subject.host.runtime.cgroup_driver()
    except RuntimeUnavailable:
        return  # the check named CRI says so
    if driver is None:
        yield warning(
            "You must update your container runtime to a version that supports the CRI method RuntimeConfig. Falling back to using cgroupDriver"
            " from kubelet config will be removed in 1.37",
            remedy="install containerd v2.0 or later, or CRI-O v1.28 or later",
        )
