"""A Cluster as oneinfra's own programs would have it after some time: written from the description of its API."""

from __future__ import annotations

import copy
import warnings
from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hub_kit import API_CA, CLIENT_CA, CLOCK, JOIN_KEY, SERVING_CA

from kubewright.base.randomness import SeededRandom
from kubewright.pki import issuing, keys, store
from kubewright.pki.keys import Algorithm
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import MemoryStore
from kubewright.pki.table import CLIENT, SERVER

PEER = "kI1mGnQ2dXHcmhYQLWP5Rwq2k3Zy1mPmJkHkcNrcPGI="
SERVER_KEY = "6Pq8hEdXy1oHqkfTQhQ1kJbXhX0h0YzPMcWlYQ0pAUM="
NODE_KEY = "wD6jQTvHnUO8fyJ1oGYkJp0mQd7Lr5vKXk3m9s0rE2M="
_SUBJECT = (
    *(NameOID.COUNTRY_NAME, NameOID.STATE_OR_PROVINCE_NAME, NameOID.LOCALITY_NAME),
    *(NameOID.STREET_ADDRESS, NameOID.POSTAL_CODE, NameOID.ORGANIZATION_NAME),
)
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


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


def authority(name: str) -> dict[str, str]:
    """Create a CA as oneinfra's programs do: RSA, with placeholders in its subject, among them a country of twelve letters."""
    key = rsa.generate_private_key(65537, 2048)
    words = ("Country", "Province", "Locality", "StreetAddress", "PostalCode", "Company")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the country
        rows = [x509.NameAttribute(oid, f"Some {word}", _validate=False) for oid, word in zip(_SUBJECT, words, strict=True)]
    subject = x509.Name([*rows, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder(
        subject, subject, key.public_key(), x509.random_serial_number(), CLOCK.now(), CLOCK.now() + timedelta(3650)
    )
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    signs = dict.fromkeys(_USAGES, False) | {"digital_signature": True, "key_cert_sign": True}
    made = made.add_extension(x509.KeyUsage(**signs), True).add_extension(x509.ExtendedKeyUsage(usages), False)
    found = made.add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
    return {"certificate": found.public_bytes(serialization.Encoding.PEM).decode(), "privateKey": private}


def client_certificate(node: str, *, days: int = 365) -> dict[str, str]:
    """Return the certificate of a node with its key, as `oi reconcile` stores it."""
    spec = CertificateSpec(
        name=node,
        base=node,
        common_name=f"system:node:{node}",
        organizations=("system:nodes",),
        usages=(*CLIENT, *SERVER),
        lifetime=timedelta(days),
        algorithm=Algorithm.ECDSA_P256,
        signer="ca",
    )
    signer = store.require_authority(MemoryStore({"ca.crt": CLIENT_CA[0].encode(), "ca.key": CLIENT_CA[1].encode()}), "ca", wanted="it")
    key = keys.generate(Algorithm.ECDSA_P256)
    made = issuing.signed(spec, key, signer, started=CLOCK.now() - timedelta(30), random=SeededRandom(9))
    return {"certificate": made.decode(), "privateKey": key.pem().decode()}


def with_vpn(name: str = "old", **changes: Any) -> dict[str, Any]:
    """Return a cluster with a VPN with one node, which has the first address; the hub's interface has that of the network."""
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
