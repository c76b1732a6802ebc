"""A Cluster as oneinfra's own programs would have it after some time: written from the description of its API."""

from __future__ import annotations

import copy
from typing import Any

from hub_kit import API_CA, CLIENT_CA, JOIN_KEY, SERVING_CA

PEER = "kI1mGnQ2dXHcmhYQLWP5Rwq2k3Zy1mPmJkHkcNrcPGI="
SERVER_KEY = "6Pq8hEdXy1oHqkfTQhQ1kJbXhX0h0YzPMcWlYQ0pAUM="
NODE_KEY = "wD6jQTvHnUO8fyJ1oGYkJp0mQd7Lr5vKXk3m9s0rE2M="


def manifest(name: str = "old", **changes: Any) -> dict[str, Any]:
    """Return the manifest; a change is a path with `__` for dots, and its value, None to remove it."""
    pair = {"certificate": CLIENT_CA[0], "privateKey": CLIENT_CA[1]}
    made: dict[str, Any] = {
        "apiVersion": "cluster.oneinfra.ereslibre.es/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "kubernetesVersion": "1.36.3",
            "controlPlaneReplicas": 1,
            "certificateAuthorities": {
                "apiServerClient": pair,
                "kubelet": {"certificate": SERVING_CA[0], "privateKey": SERVING_CA[1]},
                "kubeletClient": pair,
            },
            "apiServer": {"ca": {"certificate": API_CA[0], "privateKey": API_CA[1]}, "extraSANs": ["10.0.0.1"]},
            "vpn": {"enabled": False},
            "joinKey": {"publicKey": "ignored", "privateKey": JOIN_KEY},
            "joinTokens": ["abcdef.0123456789abcdef", "ghijkl.0123456789abcdef"],
            "networking": {"serviceCIDR": "10.96.0.0/16", "clusterCIDR": "10.244.0.0/16"},
        },
        "status": {"apiServerEndpoint": "https://10.0.0.1:6443", "joinTokens": ["abcdef.0123456789abcdef"]},
    }
    for path, value in changes.items():
        *steps, last = path.split("__")
        here = made
        for step in steps:
            here[step] = copy.deepcopy(here.get(step) or {})
            here = here[step]
        here[last] = value
    return made


def with_vpn(name: str = "old", **changes: Any) -> dict[str, Any]:
    """Return one with a VPN, in which a node is: the first one has the first address, and the hub's interface that of the network."""
    peers = [{"name": "worker-node-1", "address": "10.7.0.1/16", "privateKey": NODE_KEY, "publicKey": PEER}]
    given = {
        "spec__vpn": {"enabled": True, "CIDR": "10.7.0.0/16", "privateKey": SERVER_KEY, "publicKey": "ignored"},
        "status__vpnPeers": peers,
        "status__vpnServerEndpoint": "hub.example:51820",
    }
    return manifest(name, **{**given, **changes})


def with_older_vpn(name: str = "old", **changes: Any) -> dict[str, Any]:
    """Return one as oneinfra before 20.05.0-alpha15 has it: the hub is a peer, and has the first address."""
    peers = [
        {"name": "control-plane-ingress", "address": "10.7.0.1/32", "privateKey": SERVER_KEY, "publicKey": "ignored"},
        {"name": "worker-node-1", "address": "10.7.0.2/32", "privateKey": NODE_KEY, "publicKey": PEER},
    ]
    return with_vpn(name, **{"spec__vpn": {"enabled": True, "CIDR": "10.7.0.0/16"}, "status__vpnPeers": peers, **changes})
