"""Checks of versions that go together: the control plane's and ours."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.versions import OWN, Version
from kubewright.preflight.model import Finding, Subject, warning


def kubernetes(subject: Subject) -> Iterable[Finding]:
    """A control plane of a later minor release has flags and objects that we do not know."""
    if subject.cluster is None:
        return
    wanted = Version.parse(subject.cluster.kubernetes_version)
    if (wanted.major, wanted.minor) > (OWN.major, OWN.minor):
        yield warning(
            f"Kubernetes version is greater than kubeadm version. Please consider to upgrade kubeadm. Kubernetes version: {wanted}. Kubeadm"
            f" version: {OWN.major}.{OWN.minor}.x",
            remedy=f"use a kubewright for v{wanted.major}.{wanted.minor}, or name a --kubernetes-version of v{OWN.major}.{OWN.minor}",
        )
