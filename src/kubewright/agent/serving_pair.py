"""The certificate that a kubelet API serves with when nobody gave it one: made at start, signed by an authority of the moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from kubewright.base.randomness import Random
from kubewright.pki import certificates, issuing, keys
from kubewright.pki.authorities import LoadedAuthority
from kubewright.pki.keys import Algorithm
from kubewright.pki.names import Names
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.table import Usage

_LIFE = timedelta(days=365)


def serving_pair(*, name: str, addresses: Sequence[str], now: datetime, random: Random) -> tuple[bytes, bytes]:
    """Make a certificate for a year and its key, both PEM. The API server does not verify it unless it is told to."""
    common_name = f"{name}-ca@{int(now.timestamp())}"
    authority = CertificateSpec(
        name=common_name, base="kubelet-ca", common_name=common_name, lifetime=_LIFE, algorithm=Algorithm.ECDSA_P256
    )
    authority_key = keys.generate(Algorithm.ECDSA_P256)
    authority_pem = issuing.self_signed(authority, authority_key, started=now, random=random)
    certificate = certificates.first(authority_pem, source=common_name)
    loaded = LoadedAuthority(base="kubelet-ca", pem=authority_pem, bundle=(certificate,), certificate=certificate, key=authority_key)
    leaf = CertificateSpec(
        name=name,
        base="kubelet",
        signer="kubelet-ca",
        common_name=f"{name}@{int(now.timestamp())}",
        usages=(Usage.SERVER,),
        names=Names(dns=(name,), ips=tuple(addresses)),
        lifetime=_LIFE,
        algorithm=Algorithm.ECDSA_P256,
    )
    key = keys.generate(Algorithm.ECDSA_P256)
    return issuing.signed(leaf, key, loaded, started=now, random=random) + authority_pem, key.pem()
