"""Is the cluster fit to be upgraded? The checks of `upgrade plan` that only read (kubeadm v1.36: phases/upgrade/health.go)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import NODE
from kubewright.lifecycle.upgrade.observing import CONTROL_PLANE
from kubewright.preflight.checks import ALL, Finding, Report, Result

LABEL: Final = "node-role.kubernetes.io/control-plane"


def check(api: KubeAPI, host: Host, *, ignored: Iterable[str]) -> Report:
    """Run the checks. `ignored` holds names in any case, or `all`. Raises APIError where the cluster cannot be read."""
    names = {name.lower() for name in ignored}
    rows: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("ControlPlaneNodesReady", lambda: _not_ready(api)),
        ("StaticPodManifest", lambda: _missing(host)),
    )
    return Report(results=[Result(name=name, findings=list(find()), ignored=ALL in names or name.lower() in names) for name, find in rows])


def _not_ready(api: KubeAPI) -> Iterator[Finding]:
    """Find control planes that say they are not ready; one that says nothing yet is none of them."""
    for node in api.list(NODE, label_selector=LABEL):
        conditions = node.get("status", {}).get("conditions", ())
        if any(one.get("type") == "Ready" and one.get("status") != "True" for one in conditions):
            yield Finding(text=f"the control plane {node['metadata']['name']} is not Ready", remedy="mend it before the upgrade")


def _missing(host: Host) -> Iterator[Finding]:
    paths = [host.layout.manifest(name) for name in CONTROL_PLANE]
    lacking = [str(path) for path in paths if host.read(path) is None]
    if lacking:
        yield Finding(text=f"manifests are missing: {', '.join(lacking)}", remedy="run this on a control plane")
