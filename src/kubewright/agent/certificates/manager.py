"""A node's client certificate: having one, renewing it in time, and talking with it (client-go v0.36: util/certificate)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, TypeVar

from kubewright.agent.certificates.bootstrap import Bootstrap, Issuer, SingleIssuer
from kubewright.agent.certificates.store import CredentialStore, PendingKey
from kubewright.agent.rounds import Tasks
from kubewright.agent.seams import Seams, Timings
from kubewright.base.errors import CertificateError, CertificateMismatch, Forbidden, KubewrightError, WaitTimeout
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.discovery import csr
from kubewright.discovery.csr import RequestedCertificate
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.credentials import Access, ClientCertificate
from kubewright.pki import certificates, keys
from kubewright.pki import csr as pki_csr
from kubewright.pki.certificates import Certificate, Pair
from kubewright.pki.keys import Algorithm, PrivateKey

EARLIEST: Final = 0.7
SPREAD: Final = 0.2


def rotation_point(*, not_before: datetime, not_after: datetime, random: Random) -> datetime:
    """Return when to rotate: after 70 to 90 % of the certificate's whole span, drawn anew each time."""
    return not_before + (not_after - not_before) * (EARLIEST + SPREAD * random.uniform())


def satisfies(certificate: Certificate, *, node_name: str) -> bool:
    """Whether a certificate's subject is what we would ask for: the node's user, and at least the nodes' group."""
    return certificate.common_name == pki_csr.node_user(node_name) and pki_csr.NODES in certificate.organizations


T = TypeVar("T")

_log = logging.getLogger(__name__)

_PAUSE = 1.0
"""Seconds between two rotations at least. A signer that backdates short certificates makes some that are due at once."""
_LONGEST_SLEEP = 3600.0
"""Seconds after which the wall clock is read again: it may have been set, or the machine slept."""
_NOT_ALLOWED = "it may not ask for a certificate yet: the API server does not know the rights of bootstrap tokens"
"""What people see of a 403, whose own text lists roles. It passes by itself while a cluster starts; the log has the whole text."""


@dataclass(frozen=True, kw_only=True)
class WaitingRequest:
    """A request that is open. `name` is '' where the server chose it."""

    name: str
    since: datetime


class CertificateManager:
    """The certificate of one node and the client that uses it.

        made ── establish() ──> usable ── keep_renewed() ──> renewed in time ── stop() ──> closed

    A stored pair that is for this node and has not expired is used as it is, and nobody is asked. `trouble` is why the last attempt to
    get a certificate failed, '' after one that did not.
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
    ) -> None:
        """Keep the arguments. Without `pending` a request that is open when the process ends is not found again."""
        self._node_name = node_name
        self._store = store
        self._bootstrap = bootstrap
        self._timings = timings
        self._seams = seams
        self._pending = pending
        self._tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None
        self.client: AsyncKubeClient | None = None
        self.expires: datetime | None = None
        self.rotate_at: datetime | None = None
        self.trouble = ""
        self.errors = 0
        """Attempts at a certificate that failed since the start."""
        self.waiting: WaitingRequest | None = None
        """The request that somebody has to approve and sign."""

    def api(self) -> AsyncKubeClient:
        """Return the client; `establish` must have ended."""
        if self.client is None:
            raise CertificateError(f"node {self._node_name} has no certificate yet", remedy="wait until it has joined its cluster")
        return self.client

    async def establish(self) -> None:
        """Get ready to talk as the node: with the stored pair, or with one that the cluster issues. Tries until that works."""
        stored_credentials = self._stored()
        access, pair = stored_credentials if stored_credentials is not None else await self._patiently(self._join)
        self._take(pair)
        self.client = self._seams.connect(access.as_identity(_credentials(pair)))

    def keep_renewed(self) -> None:
        """Replace the certificate when its time has come, from now on."""
        if self.rotate_at is not None:
            wait = (self.rotate_at - self._seams.clock.now()).total_seconds()
            self._timer = asyncio.get_running_loop().call_later(min(max(_PAUSE, wait), _LONGEST_SLEEP), self._look_at_the_clock)

    async def stop(self) -> None:
        """Stop renewing and close every connection. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop()
        if self.client is not None:
            await self.client.close()

    def _look_at_the_clock(self) -> None:
        if self.rotate_at is not None and self._seams.clock.now() < self.rotate_at:
            self.keep_renewed()
        else:
            self._tasks.start(self._renew())

    async def _renew(self) -> None:
        pair = await self._patiently(self._request)
        self._take(pair)
        self.keep_renewed()
        await self.api().set_identity(_credentials(pair))

    async def _request(self) -> Pair:
        """Ask for the next pair: with the certificate, or with the bootstrap credentials once it has expired."""
        expired = self.expires is not None and self._seams.clock.now() >= self.expires
        if expired and self._bootstrap is not None:
            return (await self._join())[1]
        return await self._obtain(SingleIssuer(self.api()))

    async def _obtain(self, issuer: Issuer) -> Pair:
        """Make a key, have it certified and keep both. The key is in memory only until it has its certificate, or in the file of pending ones."""
        key = keys.generate(Algorithm.ECDSA_P256) if self._pending is None else self._pending.take()
        wanted = csr.node_client(self._node_name, key, named=self._pending is not None)
        try:
            pair = self._checked(await self._awaited(issuer, wanted), key)
        except CertificateError:
            self._forget_pending()  # denied, failed, deleted or of no use: nothing will come of this request
            raise
        self._store.keep_pair(pair)
        self._forget_pending()
        return pair

    async def _awaited(self, issuer: Issuer, wanted: RequestedCertificate) -> bytes:
        if self.waiting is None or self.waiting.name != wanted.name:
            self.waiting = WaitingRequest(name=wanted.name, since=self._seams.clock.now())
        try:
            content = await issuer.obtain(wanted, within=self._timings.certificate_wait)
        except WaitTimeout:
            raise  # it is waited for again
        except KubewrightError:
            self.waiting = None
            raise
        self.waiting = None
        return content

    def _checked(self, content: bytes, key: PrivateKey) -> Pair:
        pair = Pair(certificates=tuple(certificates.parse(content, source=f"the certificate of node {self._node_name}")), key=key)
        if not certificates.fits(pair.leaf, key):
            raise CertificateMismatch(
                f"the certificate that node {self._node_name} was given is for another key", remedy="see which signer the cluster has"
            )
        return pair

    def _forget_pending(self) -> None:
        if self._pending is not None:
            self._pending.forget()

    async def _join(self) -> tuple[Access, Pair]:
        if self._bootstrap is None:
            raise CertificateError(
                f"node {self._node_name} has no usable certificate",
                detail=self.trouble,
                remedy="join it again with a bootstrap token",
            )
        access, issuer = await self._bootstrap.admit()
        pair = await self._obtain(issuer)
        self._store.keep_cluster(access)
        return access, pair

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it works: after 2, 4, 8, 16 and then every 32 seconds."""
        tried = 0
        while True:
            tried += 1
            try:
                return await attempt()
            except KubewrightError as error:
                self.errors += 1
                self.trouble = _NOT_ALLOWED if isinstance(error, Forbidden) else str(error)
                _log.info("node %s has no new certificate yet: %s", self._node_name, error)
            await asyncio.sleep(self._timings.certificate_retry(tried, self._seams.random))

    def _stored(self) -> tuple[Access, Pair] | None:
        """Return what the store has if it can be used; what cannot is replaced by joining again."""
        try:
            return stored_credentials(self._store, self._node_name, now=self._seams.clock.now())
        except KubewrightError as error:
            self.trouble = str(error)
            _log.warning("node %s joins again: %s", self._node_name, error)
            return None

    def _take(self, pair: Pair) -> None:
        leaf = pair.leaf
        self.trouble = ""
        self.expires = leaf.not_after
        self.rotate_at = rotation_point(not_before=leaf.not_before, not_after=leaf.not_after, random=self._seams.random)


def stored_credentials(store: CredentialStore, node_name: str, *, now: datetime) -> tuple[Access, Pair] | None:
    """Return where the cluster is and the pair for it, None if the pair is missing, expired or another node's.

    Raises CertificateError, DocumentError, ValidationError or HostError for what cannot be read.
    """
    access = store.cluster()
    pair = store.pair() if access is not None else None
    if access is None or pair is None or now >= pair.leaf.not_after:
        return None
    return (access, pair) if satisfies(pair.leaf, node_name=node_name) else None


def is_usable(store: CredentialStore, node_name: str, *, now: datetime) -> bool:
    """Whether a node can start from what it has stored, without a bootstrap."""
    try:
        return stored_credentials(store, node_name, now=now) is not None
    except KubewrightError:
        return False


def _credentials(pair: Pair) -> ClientCertificate:
    return ClientCertificate(cert_pem=pair.certificate_pem(), key_pem=pair.key.pem())
