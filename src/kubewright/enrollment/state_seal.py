"""How secrets in a hub's state are sealed, wherever the state is: what they are for is part of the seal, so that none can be moved to another."""

from __future__ import annotations

import json
from typing import Any

from kubewright.base.masking import remember
from kubewright.base.randomness import Random
from kubewright.enrollment import clusters
from kubewright.enrollment.clusters import TenantCluster
from kubewright.enrollment.store import JoinToken
from kubewright.pki import sealing
from kubewright.tokens.strings import BootstrapTokenString


class StateSeal:
    """Seals with `key`, 32 bytes that are kept elsewhere. `place` names the state in errors. What is opened raises TrustError where it was altered."""

    def __init__(self, key: bytes, *, random: Random, place: str) -> None:
        self._key = key
        self._random = random
        self._place = place

    def of_cluster(self, cluster: TenantCluster) -> bytes:
        """Return the secrets of a cluster."""
        return self._seal(f"cluster {cluster.name}", json.dumps(cluster.secrets()))

    def cluster(self, name: str, document: dict[str, Any], sealed: bytes) -> TenantCluster:
        """Put a cluster together."""
        return clusters.read(document, json.loads(self._open(f"cluster {name}", sealed)))

    def of_token(self, token: JoinToken) -> bytes:
        """Return the secret half of a token."""
        return self._seal(f"token {token.cluster} {token.token.id}", token.token.secret)

    def token(self, cluster: str, id_: str, sealed: bytes, *, expires: str, description: str) -> JoinToken:
        """Put a token together."""
        secret = remember(self._open(f"token {cluster} {id_}", sealed))
        return JoinToken(cluster=cluster, token=BootstrapTokenString(id_, secret), expires=expires, description=description)

    def _seal(self, about: str, text: str) -> bytes:
        return sealing.seal(text.encode(), self._key, random=self._random, about=about.encode())

    def _open(self, about: str, sealed: bytes) -> str:
        return sealing.opened(sealed, self._key, what=f"{about} in {self._place}", about=about.encode()).decode()
