"""The only module that makes an SSLContext, and the handshake that shows whether a server is serving yet.

The caller gives trusted certificates as PEM, or asks for the system's store explicitly; SSL_CERT_FILE, SSL_CERT_DIR
and SSLKEYLOGFILE, which `ssl.create_default_context` would honour, are never used. Private keys reach OpenSSL through
memory only: `ssl` reads them from a path, and a memfd has one below /proc/self/fd, even for a process that is not
dumpable.

One client context takes about 1 ms (0.6 ms of it for OpenSSL to read the key) and 27 kB, of which 18 kB are the bare
context with one CA. kube-apiserver opens its port at once and serves a second later: a handshake that begins in
between completes when the server is ready.
"""

from __future__ import annotations

import enum
import functools
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from kubewright.base.deadlines import Deadline, holding
from kubewright.base.errors import CertificateError, HostError
from kubewright.base.records import dataclass, field
from kubewright.http.deadlines import Bounded, connected
from kubewright.pki.encoding import pem

# The paths that Go's crypto/x509 reads on Linux (root_linux.go), so that we trust the same CAs as kubeadm on this
# machine.
SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class Clients(enum.Enum):
    """How a server treats its clients' certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


_MODES: Final = {Clients.NONE: ssl.CERT_NONE, Clients.OPTIONAL: ssl.CERT_OPTIONAL, Clients.REQUIRED: ssl.CERT_REQUIRED}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """The peer, identified by a certificate that the handshake has verified."""

    common_name: str
    organizations: tuple[str, ...]
    der: bytes
    expires: float
    """When the certificate expires, in seconds since 1970; 0 if that is unknown, so that it counts as expired."""
    context: ssl.SSLContext | None = field(default=None, compare=False, repr=False)
    """The context of the handshake."""

    def has_expired(self, now: datetime) -> bool:
        """Whether the certificate has expired since the handshake: connections may last for days."""
        return now.timestamp() > self.expires


def client_context(
    ca_pem: bytes | None,
    cert_pem: bytes | None = None,
    key_pem: bytes | None = None,
    *,
    verify: bool = True,
) -> ssl.SSLContext:
    """Make a context for connecting to a server whose CA we know.

    `cert_pem` is our certificate followed by its intermediates; pass it together with `key_pem`, or neither. Without
    `verify` the server is not authenticated: use that only if the data is verified by other means. Raises
    CertificateError for unusable PEM, or if there is no CA to verify with.
    """
    if (cert_pem is None) is not (key_pem is None):
        raise CertificateError("a client certificate and its key must be given together", remedy="pass both or neither")
    context = _bare(ssl.PROTOCOL_TLS_CLIENT)
    if verify:
        if ca_pem is None:
            raise CertificateError("there is no CA certificate to verify the server with", remedy="pass the cluster's CA certificate")
        trust(context, ca_pem)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_pem is not None and key_pem is not None:
        identify(context, cert_pem, key_pem)
    return context


@functools.lru_cache(maxsize=16)
def anonymous_context(ca_pem: bytes | None, *, verify: bool = True) -> ssl.SSLContext:
    """Return a client context without a certificate, shared by all users of the same CA, such as many nodes that join.

    Do not give it an identity. Raises the errors of `client_context`.
    """
    return client_context(ca_pem, verify=verify)


def server_context(
    cert_pem: bytes,
    key_pem: bytes,
    *,
    client_ca_pem: bytes | None = None,
    clients: Clients = Clients.NONE,
) -> ssl.SSLContext:
    """Make a context for serving. A client certificate that `client_ca_pem` did not sign fails the handshake; if it is empty, every one does."""
    context = _bare(ssl.PROTOCOL_TLS_SERVER)
    identify(context, cert_pem, key_pem)
    if clients is not Clients.NONE:
        if client_ca_pem is None:
            raise CertificateError("there is no CA certificate to verify clients with", remedy="pass the CA that signs client certificates")
        if client_ca_pem:
            trust(context, client_ca_pem)
        context.verify_mode = _MODES[clients]
    return context


_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a server: the oldest version of TLS, and the cipher suites of TLS 1.2 by OpenSSL's names, '' for Python's choice."""

    oldest: str = "1.2"
    ciphers: str = ""


def selecting_context(
    choose: Callable[[], ssl.SSLContext | None], *, clients: Clients = Clients.NONE, limits: Limits | None = None
) -> ssl.SSLContext:
    """Make a context for serving without a certificate: each handshake uses the context that `choose` returns, or fails if it returns None.

    The chosen context must be made for the same `clients`. Sessions are not resumed, because they could outlive the
    CAs of their certificates. Raises HostError for cipher suites that OpenSSL does not have.
    """
    limits = limits or Limits()
    context = _bare(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[limits.oldest]
    if limits.ciphers:
        try:
            context.set_ciphers(limits.ciphers)
        except ssl.SSLError as error:
            raise HostError(
                "OpenSSL has none of the cipher suites", detail=limits.ciphers, remedy="choose others, or leave tlsCipherSuites out"
            ) from error
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.verify_mode = _MODES[clients]

    def select(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        # OpenSSL calls this even if the client names no server, as clients do that connect to an address
        chosen = choose()
        if chosen is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = chosen
        return None

    context.sni_callback = select
    return context


def host_context() -> ssl.SSLContext:
    """Make a context that trusts the CAs of this machine: for downloads, https discovery, and an external etcd without a CA file.

    Raises HostError if the machine has no CA bundle.
    """
    context = _bare(ssl.PROTOCOL_TLS_CLIENT)
    bundle = next((path for path in SYSTEM_BUNDLES if Path(path).is_file()), None)
    if bundle is None:
        raise HostError(
            "this machine has no bundle of trusted CA certificates",
            detail=f"looked for {', '.join(SYSTEM_BUNDLES)}",
            remedy="install the package ca-certificates",
        )
    context.load_verify_locations(cafile=bundle)
    return context


def identify(context: ssl.SSLContext, cert_pem: bytes, key_pem: bytes) -> None:
    """Set or replace the certificate and key of a context: connections made from now on use them. Raises CertificateError."""
    chain = pem.certificates(cert_pem, source="the certificate")
    key = [block.pem() for block in pem.blocks(key_pem, source="the private key") if block.private][:1]
    try:
        with _in_memory(b"".join([*(pem.encode(pem.CERTIFICATE, der) for der in chain), *key])) as path:
            # otherwise OpenSSL would ask for an encrypted key's passphrase on the terminal
            context.load_cert_chain(path, password=lambda: b"")
    except FileNotFoundError as error:
        raise HostError(
            "certificates cannot be used for a connection: /proc is not mounted",
            detail="OpenSSL reads keys through a file in memory, whose path is below /proc",
            remedy="mount /proc, with --rootfs below that directory",
        ) from error
    except ssl.SSLError as error:
        what = "the certificate and the private key do not match"
        if error.reason != "KEY_VALUES_MISMATCH":
            what = "the certificate or its private key cannot be read"
        raise CertificateError(what, detail=error.reason or "", remedy="both must be PEM, the key not encrypted") from error


def trust(context: ssl.SSLContext, ca_pem: bytes) -> None:
    """Trust further CA certificates: those that every other program finds in the text as well. Raises CertificateError."""
    found = pem.certificates(ca_pem, source="the CA bundle")
    try:
        context.load_verify_locations(cadata=b"".join(found))
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError("the CA bundle contains a certificate that cannot be read", remedy="create it again") from error


def peer_of(connection: ssl.SSLObject | ssl.SSLSocket | None) -> Peer | None:
    """Return the peer of a connection; None without TLS, without a certificate, or without verification."""
    der = connection.getpeercert(binary_form=True) if connection is not None else None
    if connection is None or der is None:
        return None
    subject = connection.getpeercert() or {}
    pairs = [pair for name in _names(subject.get("subject")) for pair in name]
    common = [value for key, value in pairs if key == "commonName"]
    return Peer(
        common_name=common[-1] if common else "",
        organizations=tuple(value for key, value in pairs if key == "organizationName"),
        der=der,
        expires=_seconds(subject.get("notAfter")),
        context=connection.context,
    )


def _seconds(moment: object) -> float:
    try:
        return float(ssl.cert_time_to_seconds(moment)) if isinstance(moment, str) else 0.0
    except ValueError:
        return 0.0


def _names(subject: object) -> tuple[tuple[tuple[str, str], ...], ...]:
    return subject if isinstance(subject, tuple) else ()


class _BoundedTLS(Bounded, ssl.SSLSocket):
    """TLS over a socket that keeps deadlines; the handshake keeps them too."""

    def do_handshake(self, block: bool = False) -> None:
        self.arm()
        super().do_handshake(block)


def _bare(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.sslsocket_class = _BoundedTLS
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Like Go, accept every certificate of the bundle as an anchor, including intermediates: a cluster's CA may be
    # one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Give content a path that only this process can open, within the block."""
    descriptor = os.memfd_create("kubewright", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def serves(address: str, port: int, *, within: float) -> bool:
    """Do a TLS handshake, waiting for at most `timeout` seconds. The certificate is not verified, and no request is sent."""
    context = anonymous_context(None, verify=False)
    with suppress(OSError), holding(Deadline(within)), connected(address, port, silence=None) as connection:
        context.wrap_socket(connection).close()
        return True
    return False


async def serves_async(address: str, port: int, *, within: float) -> bool:
    """The asynchronous form of `serves`."""
    import asyncio  # commands do not need asyncio, which takes 15 ms to import

    from kubewright.http.opening import opened

    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(within):
            transport = await opened(asyncio.Protocol(), address, port, context=anonymous_context(None, verify=False))
        transport.abort()
        return True
    return False


async def peer_at(address: str, port: int, *, context: ssl.SSLContext, within: float) -> Peer | None:
    """Return the peer at an address, identified by its certificate; None if there is no answer in time, or `context` does not accept it."""
    import asyncio  # commands do not need asyncio, which takes 15 ms to import

    from kubewright.http.opening import opened

    class Shown(asyncio.Protocol):
        peer: Peer | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.peer = peer_of(transport.get_extra_info("ssl_object"))

    shown = Shown()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(within):
            transport = await opened(shown, address, port, context=context)
        transport.abort()
    return shown.peer
