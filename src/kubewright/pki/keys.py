"""Private keys: generating and parsing them, and the PEM forms that kubeadm writes.

The X.509 library generates keys from the system's randomness: an injected `Random` covers serial numbers only.
Generating an RSA key releases the interpreter lock, so several are generated in threads in parallel with other work.
"""

from __future__ import annotations

import enum
import functools
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kubewright.base.errors import CertificateError
from kubewright.base.messages import quoted
from kubewright.pki.encoding import pem
from kubewright.pki.encoding.pem import reading

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, rsa


class Algorithm(enum.StrEnum):
    """The values of `encryptionAlgorithm`."""

    RSA_2048 = "RSA-2048"
    RSA_3072 = "RSA-3072"
    RSA_4096 = "RSA-4096"
    ECDSA_P256 = "ECDSA-P256"
    ECDSA_P384 = "ECDSA-P384"

    @property
    def slow(self) -> bool:
        """Whether generating a key takes long enough to do it in a thread."""
        return self.value.startswith("RSA")


_EXPONENT: Final = 65537
_LARGEST: Final = 16384
"""Bits of the largest RSA key that OpenSSL supports."""


class PrivateKey:
    """An RSA or ECDSA private key. Its text forms never show the key itself, except `pem`."""

    __slots__ = ("native",)

    def __init__(self, native: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self.native = native
        """The library's object, for the modules of this package only."""

    def __repr__(self) -> str:
        return f"PrivateKey({self.kind})"

    @property
    def kind(self) -> str:
        """The kind of key: `RSA-2048`, `ECDSA-P256`, or similar for kinds that we do not generate."""
        return kind_of(self.native)

    def pem(self) -> bytes:
        """Return `RSA PRIVATE KEY` (PKCS#1) or `EC PRIVATE KEY` (SEC 1), without a password."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self.native.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())

    def public_der(self) -> bytes:
        """Return the public half as DER SubjectPublicKeyInfo."""
        return public_der(self.native.public_key())

    def public_pem(self) -> bytes:
        """Return the public half as `PUBLIC KEY` (PKIX)."""
        return pem.encode(pem.PUBLIC_KEY, self.public_der())

    def signature_hash(self) -> hashes.HashAlgorithm:
        """Return the digest that certificates signed by this key use: by curve for ECDSA, SHA-256 for RSA (Go's crypto/x509)."""
        from cryptography.hazmat.primitives import hashes

        bits = self.native.key_size
        return {384: hashes.SHA384(), 521: hashes.SHA512()}.get(bits, hashes.SHA256())

    def sign(self, content: bytes) -> bytes:
        """Sign a text as `certificates.Certificate.has_signed` verifies it: PKCS#1 v1.5 or ECDSA, with the digest of `signature_hash`."""
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

        if isinstance(self.native, rsa.RSAPrivateKey):
            return self.native.sign(content, padding.PKCS1v15(), self.signature_hash())
        return self.native.sign(content, ec.ECDSA(self.signature_hash()))


def kind_of(key: object) -> str:
    """Return the kind and size of a private or public key of the library: `RSA-2048`, `ECDSA-P256`, else its class."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, (rsa.RSAPrivateKey, rsa.RSAPublicKey)):
        return f"RSA-{key.key_size}"
    if isinstance(key, (ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey)):
        return f"ECDSA-P{key.key_size}"
    return type(key).__name__


def public_der(key: object) -> bytes:
    """Return the DER SubjectPublicKeyInfo of a public key of the library."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]


def generate(algorithm: Algorithm | str) -> PrivateKey:
    """Generate one key. Raises CertificateError for an algorithm that is not in the list."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    chosen = _algorithm(algorithm)
    if chosen.slow:
        return PrivateKey(rsa.generate_private_key(public_exponent=_EXPONENT, key_size=int(chosen.value.removeprefix("RSA-"))))
    return PrivateKey(ec.generate_private_key(ec.SECP384R1() if chosen is Algorithm.ECDSA_P384 else ec.SECP256R1()))


def _algorithm(name: Algorithm | str) -> Algorithm:
    try:
        return Algorithm(name)
    except ValueError as error:
        raise CertificateError(f"{quoted(name)} is not a known key algorithm", remedy=f"use one of {', '.join(Algorithm)}") from error


class KeySource(Protocol):
    """A source of new keys."""

    def take(self, algorithm: Algorithm | str, /) -> PrivateKey:
        """Return a key that no other caller has received."""
        ...


class FreshKeys:
    """Generates each key on demand."""

    def take(self, algorithm: Algorithm | str, /) -> PrivateKey:
        return generate(algorithm)


class KeyPool:
    """Generates keys in threads ahead of their use.

    `reserve` starts generating them, `take` waits for one; a key that was not reserved is generated immediately. Cheap
    keys are never generated ahead. Leaving the context drops pending keys. Several threads may take at a time.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1
        self._waiting: dict[Algorithm, list[Future[PrivateKey]]] = {}
        self._lock = threading.Lock()

    def reserve(self, algorithm: Algorithm | str, count: int = 1) -> None:
        """Start generating so many keys."""
        chosen = _algorithm(algorithm)
        if chosen.slow:
            started = [self._executor.submit(generate, chosen) for _ in range(count)]
            self._waiting.setdefault(chosen, []).extend(started)

    def have(self, algorithms: Sequence[Algorithm]) -> None:
        """Start generating keys until these are reserved and not taken."""
        for algorithm in dict.fromkeys(algorithms):
            self.reserve(algorithm, max(0, algorithms.count(algorithm) - len(self._waiting.get(algorithm, []))))

    def take(self, algorithm: Algorithm | str, /) -> PrivateKey:
        chosen = _algorithm(algorithm)
        with self._lock:
            waiting = self._waiting.get(chosen)
            reserved = waiting.pop(0) if waiting else None
        return generate(chosen) if reserved is None else reserved.result()

    def close(self) -> None:
        """Stop generating keys. Threads finish the keys in progress, which are dropped."""
        if "_executor" in self.__dict__:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._waiting.clear()

    def __enter__(self) -> KeyPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @functools.cached_property
    def _executor(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix="key")


def load(text: bytes, *, source: str) -> PrivateKey:
    """Parse the first private key of PEM text: PKCS#1, SEC 1 or PKCS#8, without a password, RSA or ECDSA.

    Blocks before it, such as the `EC PARAMETERS` that openssl writes, are skipped. Raises CertificateError, naming
    `source`.
    """
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    found = next((block for block in pem.blocks(text, source=source) if block.private), None)
    remedy = f"restore {source} from a copy, without a password"
    if found is None:
        raise CertificateError(f"{source} contains no private key", remedy=remedy)
    if found.headers or found.label.startswith("ENCRYPTED"):
        raise CertificateError(f"the private key in {source} is protected by a password", remedy=remedy)
    with reading(f"the private key in {source}", remedy=remedy):
        native = load_der_private_key(found.der, None, unsafe_skip_rsa_key_validation=True)
        whole = not isinstance(native, rsa.RSAPrivateKey) or _consistent(native.private_numbers())
    if not whole:
        raise CertificateError(f"the private key in {source} is damaged: its numbers are inconsistent", remedy=remedy)
    if not isinstance(native, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)):
        raise CertificateError(f"the private key in {source} is {kind_of(native)}, neither RSA nor ECDSA", remedy=remedy)
    return PrivateKey(native)


def _consistent(found: rsa.RSAPrivateNumbers) -> bool:
    """Check everything about an RSA key except that its factors are prime.

    The library's own check takes twice as long as generating the key (37 ms for 2048 bits, 0.1 ms for this), nearly all
    of it for primality, which a damaged file never satisfies if the rest is consistent.
    """
    p, q, d, public = found.p, found.q, found.d, found.public_numbers
    if not (p > 1 and q > 1 and p * q == public.n and public.n % 2 and public.n.bit_length() <= _LARGEST and public.e > 1):
        return False
    fits = d * public.e % (p - 1) == 1 % (p - 1) and d * public.e % (q - 1) == 1 % (q - 1)
    return fits and found.dmp1 == d % (p - 1) and found.dmq1 == d % (q - 1) and found.iqmp * q % p == 1


def load_public(text: bytes, *, source: str) -> list[bytes]:
    """Parse every `PUBLIC KEY` or `RSA PUBLIC KEY` of PEM text, each as DER SubjectPublicKeyInfo.

    Raises CertificateError, naming `source`, for one that cannot be parsed, and if there is none.
    """
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    found = [block for block in pem.blocks(text, source=source) if block.label.endswith(pem.PUBLIC_KEY)]
    if not found:
        raise CertificateError(f"{source} contains no public key", remedy=f"restore {source} from a copy")
    with reading(f"a public key in {source}"):
        return [public_der(load_der_public_key(block.der)) for block in found]
