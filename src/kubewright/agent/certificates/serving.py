"""The serving certificate that the cluster signs for a node's kubelet API.

Source: kubelet v1.36: serverTLSBootstrap.

It covers the addresses of the Node, so it is requested once the Node exists, and again when the Node gets an address
that it lacks. No controller of Kubernetes approves such requests: without another approver they stay open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kubewright.agent.certificates.bootstrap import Issuer, SingleIssuer
from kubewright.agent.certificates.manager import CertificateManager, CertificateView
from kubewright.agent.certificates.store import PairStore, PendingKey
from kubewright.agent.certificates.templates import CertificateTemplate, serving_names
from kubewright.agent.dependencies import Seams, Timings
from kubewright.base.errors import KubewrightError
from kubewright.base.records import dataclass
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.pki.certificates import Pair

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServingRequests:
    """How a node requests its serving certificate: where it is stored, and what to call with each new pair."""

    store: PairStore
    use: Callable[[Pair], None]
    pending: PendingKey | None = None


class ServingCertificate:
    """Keeps the serving certificate of one node.

    made ── begin() ──> the stored one is used ── node_changed() ──> one for the Node's addresses, renewed in time ── stop() ──> stopped
    """

    def __init__(
        self, node_name: str, requests: ServingRequests, *, api: Callable[[], AsyncKubeAPI], timings: Timings, seams: Seams
    ) -> None:
        self._node_name = node_name
        self._requests = requests
        self._api = api
        self._seams = seams
        self._template: CertificateTemplate | None = None
        self._manager = CertificateManager(
            node_name,
            template=lambda: self._template,
            store=requests.store,
            issuer=self._issuer,
            taken=self._use,
            timings=timings,
            seams=seams,
            pending=requests.pending,
        )

    @property
    def view(self) -> CertificateView:
        """The state of this certificate."""
        return self._manager.view

    def begin(self) -> None:
        """Use the stored certificate unless it has expired."""
        try:
            pair = self._requests.store.pair()
        except KubewrightError as error:
            _log.warning("node %s asks for another serving certificate: %s", self._node_name, error)
            return
        if pair is not None and self._seams.clock.now() < pair.leaf.not_after:
            self._manager.use(pair)
            self._requests.use(pair)

    def node_changed(self, node: Object) -> None:
        """Follow the Node's addresses."""
        names = serving_names(node.get("status", {}).get("addresses") or ())
        template = None if names is None else CertificateTemplate(node_name=self._node_name, names=names)
        if template != self._template:
            begins, self._template = self._template is None, template
            self._manager.keep_renewed() if begins else self._manager.template_changed()

    async def stop(self) -> None:
        """Stop requesting. Idempotent."""
        await self._manager.stop()

    async def _issuer(self) -> Issuer:
        return SingleIssuer(self._api())

    async def _use(self, pair: Pair) -> None:
        self._requests.use(pair)
