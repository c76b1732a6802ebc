"""Hostile requests generated from a seed, and what must hold whatever they contain.

Half of them are signed with the key that they name, so that only the rules prevent a certificate. The judge reads
certificates with the X.509 library, which shares no code with the signer; it reads only subjects itself.
"""

from __future__ import annotations

import base64
import functools
import random
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from controllers_kit import CLIENT_USAGES, KEY, NODES, NOW, SERVING_USAGES, authority, condition, csr, extension, rdn, request, san
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID as Extended
from cryptography.x509.oid import ExtensionOID, NameOID

from kubewright.base.randomness import SeededRandom
from kubewright.controllers import approving, authorities, cleaning, requests, signing
from kubewright.controllers.requests import CLIENT, CLIENT_KUBELET, KUBELET_SERVING, LEGACY_UNKNOWN, Retry
from kubewright.controllers.signers import SIGNERS
from kubewright.controllers.signing import Fail, Sign
from kubewright.pki.encoding import der, pem
from kubewright.pki.requests import request_signing

YEAR: Final = timedelta(hours=8760)
_CN, _ORGANIZATION = NameOID.COMMON_NAME.dotted_string, NameOID.ORGANIZATION_NAME.dotted_string
_OIDS: Final = (_CN, _ORGANIZATION, "2.5.4.6", "2.5.4.5", "2.5.4.11", "2.5.4.17", "0.9.2342.19200300.100.1.1", "1.2.3")
_TEXTS: Final = (NODES, "system:node:a", "system:node:", "system:masters", "a", "", "n\u00e4me", "a\0b", "*", "x" * 300, "system:nodes ")
_STRINGS: Final = (0x0C, 0x13, 0x14, 0x16, 0x12, 0x1E, 0x1B, 0x1A, 0x30, 0x02)
_NAMES: Final = (
    ("dns", "a.example"),
    ("dns", "*.kubernetes.default.svc"),
    ("dns", "XN--B\u00fccher".encode()),
    ("ip", b"\x0a\0\0\1"),
    ("ip", b"\0" * 10 + b"\xff\xff\1\2\3\4"),
    ("ip", b"\xfd" + bytes(15)),
    ("ip", b"\1"),
    ("email", "a@b"),
    ("uri", "spiffe://a/b"),
    ("uri", "http://a..b/"),
    (0xA0, b""),
    (0xA4, der.encode(der.SEQUENCE, b"")),
    (0x88, b"\x2a"),
    (0x02, b"\1"),
)
_EXTENSIONS: Final = ("2.5.29.19", "2.5.29.15", "2.5.29.37", "2.5.29.17", "2.5.29.14", "2.5.29.30", "1.2.3.4")
_USAGES: Final = (*request_signing.KEY_USAGES, *request_signing.EXTENDED_USAGES, "unheard of", "")
_TAGS: Final = (0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0C, 0x13, 0x16, 0x30, 0x31, 0x80, 0xA0, 0x1F, 0x24, 0xFF)
_KEY: Final = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
_NODE: Final = (rdn((_ORGANIZATION, NODES)), rdn((_CN, "system:node:a")))
_GOOD: Final = pem.blocks(request(names=[("dns", "a")]), source="it")[0].der
_USUAL: Final = {CLIENT_KUBELET: CLIENT_USAGES, KUBELET_SERVING: SERVING_USAGES, CLIENT: ("client auth",), LEGACY_UNKNOWN: ("any",)}


def generated(chance: random.Random) -> dict[str, Any]:
    """Return a generated, approved CertificateSigningRequest."""
    signer = chance.choice(tuple(_USUAL))
    usages = _USUAL[signer] if chance.random() < 0.7 else tuple(chance.choices(_USAGES, k=chance.randrange(4)))
    found = csr(
        chance.choices(KINDS, weights=(12, 3, 3, 1, 1))[0](chance),
        signer=signer,
        usages=usages,
        username=chance.choice(("system:node:a", "system:bootstrap:abcdef", "")),
        conditions=(condition("Approved"),),
        expiration=chance.choice((None, None, 0, -5, 600, 28_800, 10**9, 2**31 - 1)),
    )
    if chance.random() < 0.03:
        part = chance.choice(("spec", "status", "metadata"))
        found[part] = chance.choice((None, {}, dict.fromkeys(found[part])))
    return found


def _structured(chance: random.Random) -> bytes:
    """A well-formed request: most of them are nodes', with something odd."""
    sets = list(_NODE) if chance.random() < 0.7 else []
    if sets and chance.random() < 0.2:
        sets[1] = rdn((_CN, chance.choice(_TEXTS)))
    while chance.random() < (0.2 if sets else 0.8):
        sets.insert(chance.randrange(len(sets) + 1), rdn(*((chance.choice(_OIDS), _value(chance)) for _ in range(chance.randrange(1, 3)))))
    names = [chance.choice(_NAMES) for _ in range(chance.choice((0, 0, 0, 1, 1, 3)))]
    more = []
    while chance.random() < 0.1:
        more.append(extension(chance.choice(_EXTENSIONS), _junk(chance), chance.choice((b"", der.encode(der.BOOLEAN, b"\xff")))))
    if chance.random() < 0.03:
        more.append(san(("dns", "again")))
    return request(sets=sets or [rdn()], names=names, extensions=more, good=chance.random() < 0.97)


def _nested(chance: random.Random) -> bytes:
    """A request of which one part is arbitrary DER, signed as it is."""
    parts = [b"\x02\x01\x00", der.encode(der.SEQUENCE, *_NODE), _KEY, der.encode(0xA0, b"")]
    parts[chance.randrange(len(parts))] = _junk(chance)
    return _signed(der.encode(der.SEQUENCE, *parts))


def _damaged(chance: random.Random) -> bytes:
    """A good request with some bytes changed, removed or repeated."""
    data = bytearray(_GOOD)
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(data))
        match chance.randrange(3):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place : place + chance.randrange(1, 9)]
            case _:
                data[place:place] = data[place : place + chance.randrange(1, 9)]
    return pem.encode(pem.REQUEST, bytes(data))


def _around(chance: random.Random) -> bytes:
    """Text with blocks, headers and noise around a request."""
    good = pem.encode(pem.REQUEST, _GOOD)
    pieces = (
        *(good, good[:-30], good[30:], b"-----BEGIN CERTIFICATE REQUEST-----\n", b"\n-----END CERTIFICATE REQUEST-----\n"),
        *(
            good.replace(b"-----\n", b"-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
            good.replace(b" REQUEST", b""),
            b"\xff\xfe",
            b"\r\n",
            b"A" * 70_000,
        ),
    )
    return b"".join(chance.choices(pieces, k=chance.randrange(1, 5)))


def _random(chance: random.Random) -> bytes:
    data = chance.randbytes(chance.randrange(200))
    return data if chance.random() < 0.2 else pem.encode(pem.REQUEST, data)


KINDS: Final[tuple[Callable[[random.Random], bytes], ...]] = (_structured, _nested, _damaged, _around, _random)


def _value(chance: random.Random) -> bytes:
    text, kind = chance.choice(_TEXTS), chance.choice(_STRINGS)
    return der.encode(kind, text.encode("utf-16-be" if kind == 0x1E else "utf-8"))


def _junk(chance: random.Random, depth: int = 0) -> bytes:
    """Arbitrary DER, or nearly so."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(8))
    tag = chance.choice(_TAGS)
    deeper = depth < 6 and bool(tag & 0x20)
    content = b"".join(_junk(chance, depth + 1) for _ in range(chance.randrange(3))) if deeper else chance.randbytes(chance.randrange(6))
    return der.encode(tag, content)


def _signed(content: bytes) -> bytes:
    algorithm = der.encode(der.SEQUENCE, der.encode(der.OBJECT_IDENTIFIER, der.identifier_content("1.2.840.10045.4.3.2")))
    signature = der.encode(der.BIT_STRING, b"\0", KEY.sign(content, ec.ECDSA(hashes.SHA256())))
    return pem.encode(pem.REQUEST, der.encode(der.SEQUENCE, content, algorithm, signature))


@functools.cache
def _authority() -> tuple[request_signing.SigningAuthority, x509.Certificate]:
    found = authority()
    return found, found.certificate.native


def judge(body: dict[str, Any], random: SeededRandom) -> str:
    """Let all controllers decide about a request, and judge the certificate if there is one.

    Returns the outcome; raises if a rule is violated.
    """
    asked = requests.read(body)
    cleaning.decide(asked, now=NOW)
    approving.decide(asked, {"nodeclient": True, "selfnodeclient": True})
    approving.decide(requests.read({**body, "status": {}}), {"nodeclient": True, "selfnodeclient": True})
    made, issuer = _authority()
    outcomes = []
    for signer in SIGNERS:
        decision = signing.decide(asked, signer, authority_ends=authorities.ends(made), longest=YEAR, now=NOW)
        if isinstance(decision, Sign):
            text = request_signing.issue(decision.request, authority=made, usages=decision.usages, valid=decision.valid, random=random)
            with warnings.catch_warnings(action="ignore"):  # the library's, about names that are longer than X.520 allows
                _require_rules(signer.name, x509.load_pem_x509_certificate(text), issuer)
            outcomes.append("signed")
        elif isinstance(decision, Fail | Retry):
            outcomes.append("failed" if isinstance(decision, Fail) else "tried again")
    assert len(outcomes) <= 1, "one request, several signers"
    return outcomes[0] if outcomes else "nothing"


def _require_rules(signer: str, found: x509.Certificate, issuer: x509.Certificate) -> None:
    """Check the certificate itself: lifetime, extensions, and the rules of its signer (Kubernetes v1.36: pkg/controller/certificates/signer)."""
    found.verify_directly_issued_by(issuer)
    span = found.not_valid_after_utc - found.not_valid_before_utc
    assert timedelta(0) < span <= YEAR
    assert found.not_valid_after_utc <= issuer.not_valid_after_utc
    assert 0 < found.serial_number < 2**128
    if signer == LEGACY_UNKNOWN:  # it has no rules, and key usages that the library refuses to read
        return
    known = {one.oid: one for one in found.extensions}
    allowed = (
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
    )
    assert set(known) <= {*allowed, ExtensionOID.SUBJECT_ALTERNATIVE_NAME}
    basic = known[ExtensionOID.BASIC_CONSTRAINTS]
    assert basic.critical
    assert not basic.value.ca
    extended = set(known[ExtensionOID.EXTENDED_KEY_USAGE].value) if ExtensionOID.EXTENDED_KEY_USAGE in known else set()
    usage = known[ExtensionOID.KEY_USAGE].value if ExtensionOID.KEY_USAGE in known else None
    others = ("content_commitment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign")
    assert usage is None or not any(getattr(usage, name) for name in others)
    assert extended == {Extended.SERVER_AUTH if signer == KUBELET_SERVING else Extended.CLIENT_AUTH}
    if signer == CLIENT:
        return
    assert usage is not None
    assert usage.digital_signature
    subject = _subject(found)
    assert subject.count((_ORGANIZATION, NODES)) == [oid for oid, _ in subject].count(_ORGANIZATION) == 1
    [name] = [text for oid, text in subject if oid == _CN]
    assert name.startswith("system:node:")
    if signer == CLIENT_KUBELET:
        assert ExtensionOID.SUBJECT_ALTERNATIVE_NAME not in known
    else:
        names: Sequence[x509.GeneralName] = list(known[ExtensionOID.SUBJECT_ALTERNATIVE_NAME].value)
        assert names
        assert all(isinstance(one, x509.DNSName | x509.IPAddress) for one in names)


def _subject(found: x509.Certificate) -> list[tuple[str, str]]:
    """Read the subject by hand: the library refuses one that has an attribute twice, which Go writes as well."""
    parts = list(der.one(found.tbs_certificate_bytes, "a certificate").children())[5].children()
    pairs = [tuple(one.children()) for part in parts for one in part.children()]
    return [(der.identifier_text(oid.content), value.content.decode()) for oid, value in pairs]


def outcomes(seed: int, count: int) -> Counter[str]:
    """Judge this many requests, and count the outcomes. A failure names the request."""
    chance, found = random.Random(seed), Counter[str]()
    for number in range(count):
        body = generated(chance)
        try:
            found[judge(body, SeededRandom(number))] += 1
        except Exception as error:
            shown = (body.get("spec") or {}).get("request") or ""
            raise AssertionError(f"request {number} of seed {seed}: {error!r}: {body.get('spec')} {base64.b64decode(shown)!r}") from error
    return found
