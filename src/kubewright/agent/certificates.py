"""When a certificate has to be replaced, and whether it is the right one (client-go's certificate manager, v1.36). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kubewright.base.randomness import Random
from kubewright.pki import csr
from kubewright.pki.certificates import Certificate

EARLIEST: Final = 0.7
SPREAD: Final = 0.2


def rotation_point(*, not_before: datetime, not_after: datetime, random: Random) -> datetime:
    """Return when to rotate: after 70 to 90 % of the certificate's whole span, drawn anew each time."""
    return not_before + (not_after - not_before) * (EARLIEST + SPREAD * random.uniform())


def satisfies(certificate: Certificate, *, node_name: str) -> bool:
    """Whether a certificate's subject is what we would ask for: the node's user, and at least the nodes' group."""
    return certificate.common_name == csr.node_user(node_name) and csr.NODES in certificate.organizations
