"""kubeadm's feature gates (kubeadm v1.36: features/features.go), and the choice that depends on one of them here."""

from __future__ import annotations

from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration

ROOTLESS: Final = "RootlessControlPlane"
NODE_LOCAL_CRI_SOCKET: Final = "NodeLocalCRISocket"
PUBLIC_KEYS_ECDSA: Final = "PublicKeysECDSA"

GATES: Final = {ROOTLESS: False, NODE_LOCAL_CRI_SOCKET: True, PUBLIC_KEYS_ECDSA: False}
"""Every known gate with its default."""

AVAILABLE: Final = {NODE_LOCAL_CRI_SOCKET: True}
"""Gates that are generally available. kubeadm v1.36 declares them locked, but accepts and obeys other values."""


def enabled(cluster: ClusterConfiguration, gate: str) -> bool:
    """Return whether a gate is on: as set, else its default."""
    return cluster.feature_gates.get(gate, GATES[gate])


def key_algorithm(cluster: ClusterConfiguration) -> str:
    """Return the algorithm of the cluster's keys.

    The gate PublicKeysECDSA, if set, takes precedence over `encryptionAlgorithm`.
    """
    if PUBLIC_KEYS_ECDSA not in cluster.feature_gates:
        return cluster.encryption_algorithm
    return "ECDSA-P256" if cluster.feature_gates[PUBLIC_KEYS_ECDSA] else "RSA-2048"
