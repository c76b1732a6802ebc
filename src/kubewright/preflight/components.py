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
"""How many minor releases a kubelet may be older than this program."""
_VERSION: Final = re.compile(r"v\d+\.\d+\.\d+\S*")


def kubelet_version(subject: Subject) -> Version | None:
    """Return the version that the machine's kubelet reports, None if it reports none.

    Raises HostError if it does not start.
    """
    found = _VERSION.search(subject.host.programs.version(SERVICE))
    return Version.parse(found[0]) if found else None


def kubelet_fits(subject: Subject) -> Iterable[Finding]:
    """The kubelet must not be too old for this program, nor newer than the control plane."""
    found = kubelet_version(subject)
    if found is None:
        yield Finding(text="couldn't get kubelet version: the kubelet prints none", remedy="install the kubelet, of the cluster's version")
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
            remedy=f"install a kubelet of v{wanted.major}.{wanted.minor}, or choose a later --kubernetes-version",
        )


def kubelet_service(subject: Subject) -> Iterable[Finding]:
    """The kubelet's service must be enabled. A unit that no package has installed is installed later."""
    found = subject.host.service(SERVICE)
    if found is None and subject.host.facts.systemd and subject.host.programs.path(SERVICE) is not None:
        return
    if found is None:
        yield warning(
            "no service manager of this machine knows a kubelet service",
            remedy="install the kubelet's package, or start it yourself when prompted",
        )
    elif not found.enabled:
        yield warning("kubelet service is not enabled", remedy="run `systemctl enable kubelet.service`")


def kubernetes_version(subject: Subject) -> Iterable[Finding]:
    """The version must not be of a later minor release, whose flags and objects this program does not know."""
    if subject.cluster is None:
        return
    wanted = Version.parse(subject.cluster.kubernetes_version)
    if (wanted.major, wanted.minor) > (OWN.major, OWN.minor):
        yield warning(
            f"Kubernetes version is greater than the version of this program. Kubernetes version: {wanted}. Own version:"
            f" {OWN.major}.{OWN.minor}.x",
            remedy=f"use a kubewright for v{wanted.major}.{wanted.minor}, or choose a --kubernetes-version of v{OWN.major}.{OWN.minor}",
        )


def runtime_answers(subject: Subject) -> Iterable[Finding]:
    """The runtime must answer and be able to start containers.

    Its network is not checked, because it is never ready before there is a cluster.
    """
    unready = subject.host.runtime.status().unready
    if unready is not None:
        yield Finding(
            text=f"container runtime is not ready: {unready.reason}: {unready.message}",
            remedy="fix it; its own log has more details (`journalctl -u containerd`)",
        )


def runtime_version(subject: Subject) -> Iterable[Finding]:
    """A runtime that does not report its cgroup driver must be replaced before newer kubelets are installed."""
    try:
        driver = subject.host.runtime.cgroup_driver()
    except RuntimeUnavailable:
        return  # the check named CRI reports it
    if driver is None:
        yield warning(
            "You must update your container runtime to a version that supports the CRI method RuntimeConfig. Falling back to using cgroupDriver"
            " from kubelet config will be removed in 1.37",
            remedy="install containerd v2.0 or later, or CRI-O v1.28 or later",
        )
