"""The identity of a node at its API server: its client certificate, the client that uses it, and how it first gets both."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Final

from kubewright.agent.certificates.bootstrap import Bootstrap, EitherIssuer, Issuer, SingleIssuer
from kubewright.agent.certificates.manager import CertificateManager, CertificateView
from kubewright.agent.certificates.store import CredentialStore, PendingKey
from kubewright.agent.certificates.templates import CertificateTemplate
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.periodic import Tasks
from kubewright.base.errors import CertificateError, KubewrightError
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.credentials import Access, Anonymous, ClientCertificate
from kubewright.pki import certificates
from kubewright.pki.certificates import Pair
from kubewright.pki.requests import csr

_log = logging.getLogger(__name__)

_LOOK: Final = 10.0
"""Seconds between two checks whether there is a certificate."""
_PATIENCE: Final = 20.0
"""Seconds for which the API server must keep refusing a certificate before it is replaced.

A starting API server may refuse valid certificates for a moment.
"""


class NodeIdentity:
    """The client certificate of one node and the client that uses it.

        made ── establish() ──> usable ── keep_renewed() ──> renewed in time ── stop() ──> closed

    A stored pair that is for this node and has not expired is used without asking the API. Without a bootstrap, the
    credentials of the kubeconfig are used for everything, as by a kubelet: a token, or another user's certificate, for
    as long as the API server accepts it.
    """

    def __init__(
        self,
        node_name: str,
        *,
        store: CredentialStore,
        bootstrap: Bootstrap | None,
        timings: Timings,
        seams: Seams,
        pending: PendingKey | None = None,
        at_once: bool = False,
    ) -> None:
        """Keep the arguments; `pending` is that of `CertificateManager`.

        `at_once`: store the cluster's location before there is a certificate, as a kubelet that rotates certificates
        does; otherwise it is stored together with the certificate.
        """
        self._node_name = node_name
        self._store = store
        self._bootstrap = bootstrap
        self._seams = seams
        self._access: Access | None = None
        self._admitted = False
        self._unusable = ""
        self._refused_at: float | None = None
        self._at_once = at_once
        self._kept: Access | None = None
        self._borrowed = False
        self._found: tuple[Access, Pair] | None = None
        self._tasks = Tasks()
        template = CertificateTemplate(node_name=node_name)
        self._manager = CertificateManager(
            node_name,
            template=lambda: template,
            store=store,
            issuer=self._issuer,
            taken=self._use,
            timings=timings,
            seams=seams,
            pending=pending,
        )
        self.client: AsyncKubeClient | None = None

    @property
    def view(self) -> CertificateView:
        """The state of the client certificate."""
        return self._manager.view

    @property
    def trouble(self) -> str:
        """Why there is no new certificate, or what was wrong with the stored one; '' if there is no problem."""
        return self._manager.view.trouble or self._unusable

    def api(self) -> AsyncKubeClient:
        """Return the client. Call it only after `establish` has returned."""
        if self.client is None:
            raise CertificateError(f"node {self._node_name} has no certificate yet", remedy="wait until it has joined its cluster")
        return self.client

    async def establish(self) -> None:
        """Get the credentials of the node: the stored pair, or a newly issued one. Retries until it succeeds."""
        if self._bootstrap is None:
            self._found = self._stored()
            given = self._given() if self._found is None else None
            if given is not None:
                self._borrowed = True
                self.client = self._seams.connect(given)
                return
        await self._manager.obtain(instead=self._stored_pair)

    def answered(self, known: bool) -> None:
        """Record whether the API server accepted our identity, and replace a certificate early if it keeps refusing it.

        Clocks may differ, and the cluster may have a new CA.
        """
        if self._borrowed:
            if not known:
                self._tasks.start("reading the kubeconfig again", self._borrow_again)
            return
        now = asyncio.get_running_loop().time()
        if known:
            self._refused_at = None
        elif self._refused_at is None:
            self._refused_at = now
        elif self._is_refused:
            self._manager.renew_now()

    @property
    def _is_refused(self) -> bool:
        return self._refused_at is not None and asyncio.get_running_loop().time() - self._refused_at >= _PATIENCE

    async def require_certificate(self, *, within: float) -> None:
        """Check repeatedly that there is a certificate that has not expired.

        Raises CertificateError once there has been none for `within` seconds although the API server answers: a
        restart may find other credentials. If the API server does not answer, the problem is only reported (kubelet:
        pkg/kubelet/certificate/transport.go).
        """
        if self._borrowed:
            await asyncio.Event().wait()  # then no certificate is used
        now = asyncio.get_running_loop().time
        seen, reported = now(), False
        while True:
            await asyncio.sleep(min(_LOOK, within))
            if self._manager.current is not None and not self._manager.is_expired:
                seen, reported = now(), False
            elif now() - seen > within:
                if self._manager.server_healthy:
                    raise CertificateError(
                        f"node {self._node_name} has had no valid client certificate for {within:g} s, and the API server answers",
                        detail=self.trouble,
                        remedy="provide other bootstrap credentials; the service manager restarts it",
                    )
                if not reported:
                    _log.warning(
                        "node %s has had no valid client certificate for %g s; the API server does not answer", self._node_name, within
                    )
                reported = True

    def keep_renewed(self) -> None:
        """Rotate the certificate when it is due, until stopped."""
        if not self._borrowed:
            self._manager.keep_renewed()

    async def stop(self) -> None:
        """Stop rotating and close every connection. Idempotent."""
        await asyncio.gather(self._manager.stop(), self._tasks.stop())
        if self.client is not None:
            await self.client.close()

    async def _issuer(self) -> Issuer:
        """Return the issuer of the next certificate.

        It uses the current certificate, or the bootstrap credentials if no valid certificate is left. If the
        certificate has expired only by our own clock and the bootstrap credentials do not work, the API server may
        still accept the certificate.
        """
        own = SingleIssuer(self.client) if self.client is not None else None
        if own is not None and (self._bootstrap is None or not (self._manager.is_expired or self._is_refused)):
            return own
        if self._bootstrap is None:
            raise CertificateError(
                self._unusable or f"node {self._node_name} has no usable certificate",
                remedy="pass a kubeconfig that contains a bootstrap token with --bootstrap-kubeconfig",
            )
        last = None if self._is_refused else own
        try:
            self._access, issuer = await self._bootstrap.admit()
        except KubewrightError:
            if last is None:
                raise
            return last
        self._admitted = True
        if self._at_once and self._access != self._kept:
            self._store.keep_cluster(self._access)
            self._kept = self._access
        return issuer if last is None else EitherIssuer(issuer, last)

    def _given(self) -> Access | None:
        """Return the kubeconfig if it contains a user's credentials other than a node certificate (which is stored and rotated)."""
        try:
            access = self._store.given()
            if access is None or isinstance(access.identity, Anonymous):
                return None
            if isinstance(access.identity, ClientCertificate):
                pair = certificates.pair_of(access.identity.cert_pem, access.identity.key_pem, source="the kubeconfig")
                is_nodes = pair.leaf.common_name.startswith(csr.node_user(""))
                return None if is_nodes or self._seams.clock.now() >= pair.leaf.not_after else access
        except KubewrightError as error:
            self._unusable = str(error)
            _log.warning("node %s: %s", self._node_name, error)
            return None
        return access

    async def _borrow_again(self) -> None:
        """Read the kubeconfig again: a refused token may have been replaced in the file."""
        given = self._given()
        if given is not None and self.client is not None and given.identity != self.client.access.identity:
            await self.client.set_identity(given.identity)

    def _stored_pair(self) -> Pair | None:
        """Return the stored pair if it can be used: at once, or because the clock has been set since."""
        stored, self._found = self._found or self._stored(), None
        if stored is None:
            return None
        self._access, pair = stored
        return pair

    async def _use(self, pair: Pair) -> None:
        """Use a pair from now on, on open connections too."""
        assert self._access is not None
        if self._admitted:
            self._store.keep_cluster(self._access)
            self._admitted = False
        self._refused_at = None
        identity = ClientCertificate(cert_pem=pair.certificate_pem(), key_pem=pair.key.pem())
        self._unusable = ""
        if self.client is not None:
            await self.client.set_identity(identity)
        else:
            self.client = self._seams.connect(self._access.as_identity(identity))

    def _stored(self) -> tuple[Access, Pair] | None:
        """Return the stored credentials if they can be used; unusable ones are replaced by joining again."""
        try:
            return stored_credentials(self._store, self._node_name, now=self._seams.clock.now())
        except KubewrightError as error:
            self._unusable = str(error)
            _log.warning("node %s joins again: %s", self._node_name, error)
            return None


def stored_credentials(store: CredentialStore, node_name: str, *, now: datetime) -> tuple[Access, Pair] | None:
    """Return the cluster's location and the pair for it, None if the pair is missing, has expired or belongs to another node.

    Raises CertificateError, DocumentError, ValidationError or HostError for unreadable files.
    """
    access = store.cluster()
    pair = store.pair() if access is not None else None
    if access is None or pair is None or now >= pair.leaf.not_after:
        return None
    return None if CertificateTemplate(node_name=node_name).missing(pair.leaf) else (access, pair)


def is_usable(store: CredentialStore, node_name: str, *, now: datetime) -> bool:
    """Whether a node can start with its stored credentials, without a bootstrap."""
    try:
        return stored_credentials(store, node_name, now=now) is not None
    except KubewrightError:
        return False
