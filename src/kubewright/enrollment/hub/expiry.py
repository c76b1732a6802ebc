"""Expiry times of the certificates that a hub has issued. Pure.

Certificates that the kubelet is configured to renew itself are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubewright.apis.join_records import JoinRecord
from kubewright.enrollment.hub.issuing import CLIENT_CERTIFICATE, SERVING_CERTIFICATE
from kubewright.tokens.secrets import parse_moment

_RENEWING: Final[Mapping[str, str]] = {
    CLIENT_CERTIFICATE.purpose: "rotateCertificates",
    SERVING_CERTIFICATE.purpose: "serverTLSBootstrap",
}
"""Fields of a kubelet's configuration, and the certificate that the kubelet then renews itself before it expires."""


def end_of(record: JoinRecord, kubelet_config: Mapping[str, Any]) -> str:
    """Return when a node's first certificate expires that is not renewed automatically (RFC 3339).

    '' if there is none, or if the node has left.
    """
    lasting = [one.not_after for one in record.certificates if kubelet_config.get(_RENEWING.get(one.purpose, "")) is not True]
    return min(lasting, default="") if record.active else ""


class CertificateEnds:
    """The expiry times of a cluster's nodes. Nothing is known before `load`."""

    def __init__(self, kubelet_config: Mapping[str, Any]) -> None:
        self._config = kubelet_config
        self._ends: dict[str, float] = {}

    def load(self, records: Iterable[JoinRecord]) -> None:
        """Note all records. May be called from another thread than the other methods."""
        self._ends = {record.node: end for record in records if (end := self._end(record)) is not None}

    def put(self, record: JoinRecord) -> None:
        """Note one record that has changed."""
        end = self._end(record)
        if end is None:
            self._ends.pop(record.node, None)
        else:
            self._ends[record.node] = end

    def _end(self, record: JoinRecord) -> float | None:
        moment = parse_moment(end_of(record, self._config))
        return moment.timestamp() if moment is not None else None

    @property
    def first(self) -> float:
        """The earliest expiry in seconds since 1970; infinite if there is none."""
        return min(self._ends.values(), default=float("inf"))
