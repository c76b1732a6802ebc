"""The tree of reset, as data: names and order are kubeadm's (spec/kubeadm.md 2.4)."""

from __future__ import annotations

from typing import Final

from kubewright.workflow.phases import Phase, Phases

RESET: Final[Phases[object]] = Phases(
    Phase("preflight", "Run the checks before reset", aliases=("pre-flight",)),
    Phase("remove-etcd-member", "Remove this machine's member from the local etcd cluster"),
    Phase("cleanup-node", "Stop the kubelet, unmount and delete what is on this machine", aliases=("cleanupnode",)),
)
