"""Checks of the container runtime."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.errors import RuntimeUnavailable
from kubewright.preflight.model import Finding, Subject, warning


def answers(subject: Subject) -> Iterable[Finding]:
    """It must answer, and say that it can start containers. Whether the network is ready is not asked: it never is before a cluster is."""
    unready = subject.host.runtime.status().unready
    if unready is not None:
        yield Finding(
            text=f"container runtime is not ready: {unready.reason}: {unready.message}",
            remedy="mend it; its own log says more (`journalctl -u containerd`)",
        )


def version(subject: Subject) -> Iterable[Finding]:
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
