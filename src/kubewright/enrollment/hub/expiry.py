"""When what a hub gave its nodes ends. Pure. Certificates that the kubelet renews itself, because its configuration says so, do not count."""

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
"""Fields of a kubelet's configuration, and which certificate it then asks its cluster for, well before the end of the one that it has."""


def end_of(record: JoinRecord, kubelet_config: Mapping[str, Any]) -> str:
    """Return when the first certificate of a node ends that nothing renews (RFC 3339), '' where there is none, or the node has left."""
    lasting = [one.not_after for one in record.certificates if kubelet_config.get(_RENEWING.get(one.purpose, "")) is not True]
    return min(lasting, default="") if record.active else ""


class CertificateEnds:
    """The ends of a cluster's nodes. Nothing is known before `load`."""

    def __init__(self, kubelet_config: Mapping[str, Any]) -> None:
        self._config = kubelet_config
        self._ends: dict[str, float] = {}

    def load(self, records: Iterable[JoinRecord]) -> None:
        """Take note of all records. May be called in another thread than the rest."""
        self._ends = {record.node: end for record in records if (end := self._end(record)) is not None}

    def put(self, record: JoinRecord) -> None:
        """Take note of one record that has changed."""
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
        """The end that comes first, in seconds since 1970; infinite where there is none."""
        return min(self._ends.values(), default=float("inf"))
