"""What reset says at its end: what it has left, and how that goes."""

from __future__ import annotations

from collections.abc import Iterator

from kubewright.lifecycle.reset.remains import Wanted

PAGE = "https://k8s.io/docs/reference/setup-tools/kubeadm/kubeadm-reset/"


def hint(wanted: Wanted) -> str:
    """Return the last text."""
    return "\n".join(["Reset leaves on this machine, or in the cluster:", *(f"- {line}" for line in _left(wanted)), f"See also {PAGE}"])


def _left(wanted: Wanted) -> Iterator[str]:
    if not wanted.cni:
        yield "CNI configuration; `reset --cleanup-cni` removes it"
    if not wanted.packet_filter:
        yield "rules of kube-proxy and CNI plugins in the packet filter; `reset --cleanup-packet-filter` removes them"
    if not wanted.node:
        yield "the Node object; `reset --delete-node` deletes it, or `kubectl delete node NAME`"
    yield "images, and kubeconfigs of users such as $HOME/.kube/config"
