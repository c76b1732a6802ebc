"""Checks of the kubelet: its version, and its service."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kubewright.base.versions import OWN, Version
from kubewright.preflight.model import Finding, Subject, warning

SERVICE: Final = "kubelet"
SKEW: Final = 3
"""Minor releases that a kubelet may be older than we are."""
_VERSION: Final = re.compile(r"v\d+\.\d+\.\d+\S*")


def version_of(subject: Subject) -> Version | None:
    """Return the version that the machine's kubelet says it has, None where it says none. Raises HostError where it does not start."""
    found = _VERSION.search(subject.host.programs.version(SERVICE))
    return Version.parse(found[0]) if found else None


def version(subject: Subject) -> Iterable[Finding]:
    """The kubelet must be young enough for us and not newer than the control plane."""
    found = version_of(subject)
    if found is None:
        yield Finding(
            text="couldn't get kubelet version: it prints none", remedy="install the kubelet, of the version that the cluster has"
        )
        return
    if (found.major, found.minor) < (OWN.major, OWN.minor - SKEW):
        yield Finding(
            text=f"Kubelet version {found} is lower than kubeadm can support. Please upgrade kubelet",
            remedy=f"install a kubelet of v{OWN.major}.{OWN.minor - SKEW} or later",
        )
    wanted = Version.parse(subject.cluster.kubernetes_version) if subject.cluster is not None else None
    if wanted is not None and (found.major, found.minor) > (wanted.major, wanted.minor):
        yield Finding(
            text=f"the kubelet version is higher than the control plane version: kubelet {found}, control plane {wanted}",
            remedy=f"install a kubelet of v{wanted.major}.{wanted.minor}, or name a later --kubernetes-version",
        )


def service(subject: Subject) -> Iterable[Finding]:
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
