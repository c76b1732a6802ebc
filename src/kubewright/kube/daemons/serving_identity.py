"""The certificate that a daemon serves with, and the CAs of client certificates that it accepts (kubelet v1.36: InitializeTLS).

Both may change while the daemon serves. The certificate is one that the cluster has signed, one from two files, or a
self-signed one, kept in files as by a kubelet, or new at each start. The CAs come from a file, or from the cluster
that the daemon asks about its clients.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from kubewright.base.clock import Clock
from kubewright.base.errors import CertificateError, HostError, KubewrightError
from kubewright.base.randomness import Random
from kubewright.http import tls
from kubewright.http.tls import Clients, Limits, Peer
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.kubeconfigs import ReadFile
from kubewright.kube.resources import CONFIG_MAP
from kubewright.pki import certificates, issuing, keys
from kubewright.pki.certificates import Pair
from kubewright.pki.keys import Algorithm
from kubewright.pki.names import Names
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import LoadedAuthority
from kubewright.pki.table import Usage

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger(__name__)

LIFETIME: Final = timedelta(days=365)
"""The lifetime of a self-signed certificate."""
EARLIER: Final = timedelta(minutes=55)
"""A self-signed certificate is valid from an hour ago: this, and the five minutes by which each certificate is backdated."""
NAMESPACE: Final = "kube-system"
CLIENT_AUTHORITIES: Final = "extension-apiserver-authentication"
CLIENT_CA_FILE: Final = "client-ca-file"
AGAIN: Final = 60.0
"""Seconds between two reads of the CAs of clients."""
Shown = Callable[[], Pair | None]
"""Returns the certificate for the next caller, None if there is none."""


class ServingIdentity:
    """Chooses the TLS context of each handshake.

    `shown` and `client_ca` are called each time; without `client_ca` no client certificate is requested.
    """

    def __init__(self, shown: Shown, *, client_ca: Callable[[], bytes] | None, limits: Limits | None = None) -> None:
        self._shown = shown
        self._client_ca = client_ca
        self._clients = Clients.NONE if client_ca is None else Clients.OPTIONAL
        self._limits = limits
        self._made: tuple[Pair, bytes | None, ssl.SSLContext] | None = None
        self._bundles: WeakKeyDictionary[ssl.SSLContext, bytes | None] = WeakKeyDictionary()

    def context(self) -> ssl.SSLContext:
        """Return the TLS context to listen with."""
        return tls.selecting_context(self._choose, clients=self._clients, limits=self._limits)

    def trusts(self, peer: Peer) -> bool:
        """Whether the CA of a client certificate is still accepted: connections may outlast it.

        A bundle that has changed since the handshake must contain the CA that signed the certificate. The peer's
        intermediates are not known any more; it has to connect again.
        """
        bundle = self._client_ca() if self._client_ca is not None else None
        if peer.context is not None and self._bundles.get(peer.context, b"") == bundle:
            return True
        return bool(bundle) and _signed_by(peer.der, bundle or b"")

    def _choose(self) -> ssl.SSLContext | None:
        pair, client_ca = self._shown(), self._client_ca() if self._client_ca is not None else None
        if pair is None:
            _log.info("a call failed: there is no serving certificate yet")
            return None
        if self._made is None or self._made[0] is not pair or self._made[1] != client_ca:
            context = tls.server_context(pair.certificate_pem(), pair.key.pem(), client_ca_pem=client_ca, clients=self._clients)
            self._made = (pair, client_ca, context)
            self._bundles[context] = client_ca
        return self._made[2]


@functools.lru_cache(maxsize=256)
def _signed_by(der: bytes, bundle: bytes) -> bool:
    """Whether a certificate was signed by one of a bundle."""
    try:
        leaf = certificates.read(der, source="the client certificate")
        return certificates.chains_to(leaf, roots=certificates.parse(bundle, source="the CAs of clients"))
    except CertificateError:
        return False


class SignedCertificate:
    """The certificate that the cluster has signed; none after it has expired. `use` replaces it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pair: Pair | None = None

    def use(self, pair: Pair) -> None:
        """Use this certificate from now on."""
        self._pair = pair

    def __call__(self) -> Pair | None:
        return self._pair if self._pair is not None and self._clock.now() < self._pair.leaf.not_after else None


class FileContents:
    """A value made of the contents of files; it is made again when they have changed.

    If the new contents are unusable, this is logged once, and the previous value stays.
    """

    def __init__(self, paths: Sequence[PurePosixPath], *, read: ReadFile) -> None:
        self._paths = paths
        self._read = read
        self._last: list[bytes | None] = []

    def changed(self) -> list[bytes] | None:
        """Return the contents if all files exist and differ from those returned last."""
        try:
            found = [self._read(path) for path in self._paths]
        except HostError as error:
            _log.warning("%s", error)
            return None
        if found == self._last:
            return None
        self._last = found
        whole = [content for content in found if content is not None]
        return whole if len(whole) == len(found) else None


class CertificateFiles:
    """The certificate in two files, read again when they change."""

    def __init__(self, certificate: PurePosixPath, key: PurePosixPath, *, read: ReadFile) -> None:
        self._source = f"{certificate} and {key}"
        self._contents = FileContents((certificate, key), read=read)
        self._pair: Pair | None = None

    def require(self) -> None:
        """Read the files. Raises CertificateError if one is missing or unusable."""
        contents = self._contents.changed()
        if contents is None:
            raise CertificateError(f"{self._source} cannot be read", remedy="specify a certificate and its key, or neither")
        self._pair = certificates.pair_of(*contents, source=self._source)

    def __call__(self) -> Pair | None:
        contents = self._contents.changed()
        if contents is not None:
            try:
                self._pair = certificates.pair_of(*contents, source=self._source)
            except KubewrightError as error:
                _log.warning("the old serving certificate is kept: %s", error)
        return self._pair


class ClientAuthorities:
    """The bundle of CAs whose client certificates are accepted, read again when its file changes."""

    def __init__(self, path: PurePosixPath, *, read: ReadFile) -> None:
        self._path = path
        self._contents = FileContents((path,), read=read)
        self._pem = b""

    def require(self) -> None:
        """Read the file. Raises CertificateError if it is missing or contains no certificate."""
        contents = self._contents.changed()
        if contents is None:
            raise CertificateError(f"{self._path} cannot be read", remedy="set clientCAFile to the file with the cluster's CA")
        certificates.parse(contents[0], source=str(self._path))
        self._pem = contents[0]

    def __call__(self) -> bytes:
        contents = self._contents.changed()
        if contents is not None:
            try:
                certificates.parse(contents[0], source=str(self._path))
                self._pem = contents[0]
            except KubewrightError as error:
                _log.warning("client certificates are checked as before: %s", error)
        return self._pem


class ClusterAuthorities:
    """The bundle of CAs whose client certificates an API server accepts, from its ConfigMap (apiserver: DynamicConfigMapCAController).

    Until it has been read, no client certificates are accepted. Reading it requires the Role
    extension-apiserver-authentication-reader.
    """

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api
        self._pem = b""
        self._trouble = ""

    def __call__(self) -> bytes:
        return self._pem

    async def run(self) -> None:
        """Keep it up to date until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(AGAIN)

    async def look(self) -> None:
        """Read it once. A failure is logged once, and the previous bundle stays."""
        try:
            found = await self._api.get(CONFIG_MAP, CLIENT_AUTHORITIES, NAMESPACE)
            text = str((found.get("data") or {}).get(CLIENT_CA_FILE) or "").encode()
            certificates.parse(text, source=f"{CLIENT_CA_FILE} of ConfigMap {NAMESPACE}/{CLIENT_AUTHORITIES}")
        except KubewrightError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("client certificates are %s: %s", "checked as before" if self._pem else "not taken", error)
            return
        self._pem, self._trouble = text, ""


def own_pair(*, name: str, addresses: Sequence[str] = (), algorithm: Algorithm, now: datetime, random: Random) -> tuple[bytes, bytes]:
    """Make a certificate and its key, both as PEM, valid for a year and signed by a temporary CA (client-go: util/cert GenerateSelfSignedCertKey).

    The API server does not verify it unless a flag requires that.
    """
    started = now - EARLIER
    common_name = f"{name}-ca@{int(now.timestamp())}"
    authority = CertificateSpec(name=common_name, base="kubelet-ca", common_name=common_name, lifetime=LIFETIME, algorithm=algorithm)
    authority_key = keys.generate(algorithm)
    authority_pem = issuing.self_signed(authority, authority_key, started=started, random=random)
    certificate = certificates.first(authority_pem, source=common_name)
    loaded = LoadedAuthority(base="kubelet-ca", pem=authority_pem, bundle=(certificate,), certificate=certificate, key=authority_key)
    leaf = CertificateSpec(
        name=name,
        base="kubelet",
        signer="kubelet-ca",
        common_name=f"{name}@{int(now.timestamp())}",
        usages=(Usage.SERVER,),
        names=Names(dns=(name,), ips=tuple(addresses)),
        lifetime=LIFETIME,
        algorithm=algorithm,
    )
    key = keys.generate(algorithm)
    return issuing.signed(leaf, key, loaded, started=started, random=random) + authority_pem, key.pem()
