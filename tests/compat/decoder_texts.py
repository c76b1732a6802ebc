"""Texts to decode, generated from a seed: good ones, and good ones with damage that decoders may read differently."""

from __future__ import annotations

import base64
import functools
import json
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))

import hostile_requests
from decoder_oracle import Text
from decoder_readings import TOKEN

from kubewright.base.randomness import SeededRandom
from kubewright.enrollment.protocol import fields, requests
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.pki import keys, pins
from kubewright.pki.encoding import pem
from kubewright.pki.encryption import oaep
from kubewright.tokens import cluster_info

Chance = random.Random
_CURVE_KEY: Final = ec.generate_private_key(ec.SECP256R1())
_NOISE: Final = (
    *(b"=", b"==", b"\n", b"\r", b"\r\n", b" ", b"\t", b"\v", b"\f", b"\0", b"-", b"--", b":", b"A", b"\xff", b"\xc2\xa0"),
    *(b"\n\n", b"a: b\n", b"Proc-Type: 4,ENCRYPTED\n\n", b"-----BEGIN ", b"-----END ", b"\n-----END ", b"\n-----BEGIN "),
    *(b"-----BEGIN CERTIFICATE-----\n", b"\n-----END CERTIFICATE-----\n", b"-----BEGIN CERTIFICATE REQUEST-----\n"),
    *(b"\n-----END CERTIFICATE REQUEST-----\n", b"-----BEGIN X-----\n-----END X-----\n", b"-----"),
)
_TAGS: Final = (
    0x01,
    0x02,
    0x03,
    0x04,
    0x05,
    0x06,
    0x0C,
    0x12,
    0x13,
    0x14,
    0x16,
    0x17,
    0x18,
    0x1E,
    0x30,
    0x31,
    0x80,
    0x81,
    0x82,
    0x86,
    0x87,
    0xA0,
    0xA3,
)


def made(seed: int, count: int) -> Iterator[Text]:
    """Yield this many texts."""
    chance = Chance(seed)
    for _ in range(count):
        kind = chance.choices(tuple(_MAKERS), weights=tuple(weight for _, weight in _MAKERS.values()))[0]
        yield kind, _MAKERS[kind][0](chance)


def join_key() -> bytes:
    """Return the key with which join requests are encrypted."""
    return _hub()[0]


def noisy(chance: Chance, text: bytes, *, times: int = 3) -> bytes:
    """Damage a text: insert, remove, repeat or change something, mostly near the end or beginning of a line."""
    for _ in range(chance.randrange(1, times + 1)):
        place = chance.randrange(len(text) + 1)
        if chance.random() < 0.6:
            place = max(0, text.find(b"\n", place) + chance.randrange(-1, 2))
        match chance.randrange(8):
            case 0 | 1 | 2:
                text = text[:place] + chance.choice(_NOISE) + text[place:]
            case 3:
                text = text[:place] + text[place + chance.randrange(1, 6) :]
            case 4:
                end = place + chance.choice((1, 4, 64, 65, 300))
                text = text[:end] + text[place:]
            case 5:
                text = text[:place] + bytes((chance.randrange(256),)) + text[place + 1 :]
            case 6:
                text = text.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\n", b" \n", b"")), chance.choice((-1, 1)))
            case _:
                text = text.replace(
                    *chance.choice(((b"-----\n", b"----- \n"), (b"=", b""), (b"CERTIFICATE", b"certificate"), (b"-----END", b"----END"))), 1
                )
    return text


def damaged(chance: Chance, data: bytes, *, times: int = 3) -> bytes:
    """Change, remove or repeat some bytes of DER."""
    found = bytearray(data)
    for _ in range(chance.randrange(1, times + 1)):
        place = chance.randrange(max(1, len(found)))
        match chance.randrange(5):
            case 0 | 1:
                found[place : place + 1] = bytes((chance.choice((*_TAGS, chance.randrange(256))),))
            case 2:
                found[place : place + 1] = bytes(((found[place] if found else 0) ^ 1 << chance.randrange(8),))
            case 3:
                del found[place : place + chance.randrange(1, 4)]
            case _:
                found[place:place] = found[place : place + chance.randrange(1, 4)]
    return bytes(found)


def _spliced(chance: Chance, pool: Sequence[bytes]) -> bytes:
    """Return a text from the pool, possibly damaged, possibly with others around it."""
    text = chance.choice(pool)
    if chance.random() < 0.5:
        text = noisy(chance, text)
    while chance.random() < 0.25:
        other = noisy(chance, chance.choice(pool)) if chance.random() < 0.5 else chance.choice((*_NOISE, *pool))
        text = text + other if chance.random() < 0.5 else other + text
    return text


def _base64(chance: Chance) -> bytes:
    text = base64.b64encode(chance.randbytes(chance.choice((0, 1, 2, 3, 4, 5, 6, 30))))
    return noisy(chance, text, times=2) if chance.random() < 0.8 else text


def _blocks(chance: Chance) -> bytes:
    return _spliced(chance, _requests() if chance.random() < 0.5 else _bundles())


def _request(chance: Chance) -> bytes:
    if chance.random() < 0.1:  # two blocks, one of which not every decoder can read
        first, second = chance.choices(_requests()[:60], k=2)
        return first.replace(b"\n-----END", chance.choice((b"=", b"==", *_NOISE)) + b"\n-----END") + second
    if chance.random() < 0.25:
        return _spliced(chance, _requests())
    der = _der(chance.choice(_requests()))
    return pem.encode(pem.REQUEST, damaged(chance, der, times=2) if chance.random() < 0.85 else der)


def _certificate(chance: Chance) -> bytes:
    if chance.random() < 0.3:
        return _spliced(chance, _bundles())
    der = _der(chance.choice(_bundles()))
    return pem.encode(pem.CERTIFICATE, damaged(chance, der, times=2) if chance.random() < 0.9 else der)


def _der(text: bytes) -> bytes:
    return base64.b64decode(b"".join(text.split(b"-----")[2].split()))


@functools.cache
def _requests() -> list[bytes]:
    chance = Chance(1)
    return [make(chance) for make in hostile_requests.KINDS[:2] for _ in range(60)]


@functools.cache
def _bundles() -> list[bytes]:
    """Certificates with everything that those of clusters have, and more; each in one text."""
    own = [_own_certificate(number) for number in range(40)]
    return [one.public_bytes(Encoding.PEM) for one in own]


def _own_certificate(number: int) -> x509.Certificate:
    chance = Chance(number)
    key = chance.choice((_CURVE_KEY, _rsa(), ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()))
    kinds = (x509.NameOID.COMMON_NAME, x509.NameOID.ORGANIZATION_NAME, x509.NameOID.COUNTRY_NAME, x509.NameOID.LOCALITY_NAME)
    name = x509.Name(
        [
            x509.NameAttribute(kind, "DE" if kind == kinds[2] else chance.choice(("a", "system:masters", "n\u00e4me")))
            for kind in chance.choices(kinds, k=3)
        ]
    )
    start = datetime(chance.choice((1980, 2026, 2051)), 1, 2, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), chance.randrange(1, 1 << 64), start, start + timedelta(days=400))
    for extension in chance.sample(_EXTENSIONS, k=chance.randrange(len(_EXTENSIONS))):
        critical = chance.random() < 0.5 and not isinstance(extension, x509.SubjectKeyIdentifier)
        builder = builder.add_extension(extension, critical=critical)
    with warnings.catch_warnings(action="ignore"):
        return builder.sign(_CURVE_KEY, hashes.SHA256())


_EXTENSIONS: Final[tuple[x509.ExtensionType, ...]] = (
    x509.BasicConstraints(ca=True, path_length=1),
    x509.KeyUsage(True, False, True, False, False, True, False, False, False),
    x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ObjectIdentifier("1.2.3")]),
    x509.SubjectAlternativeName(
        [
            *(x509.DNSName("a.example"), x509.DNSName("*.b"), x509.RFC822Name("a@b"), x509.UniformResourceIdentifier("https://u/%7Ex")),
            *(x509.IPAddress(__import__("ipaddress").ip_address(one)) for one in ("10.0.0.1", "fd00::1", "::ffff:1.2.3.4")),
        ]
    ),
    x509.SubjectKeyIdentifier(b"12345678"),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0"),
)


@functools.cache
def _rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def _document(chance: Chance) -> dict[str, Any]:
    """A kubeconfig as plain data, with some damaged strings."""
    authority = chance.choice(_bundles())
    if chance.random() < 0.4:
        authority = _spliced(chance, _bundles())
    data = _text(chance, base64.b64encode(authority))
    cluster = {
        "server": chance.choice(("https://10.0.0.1:6443", "https://[fd00::1]:6443", "https://\u00e9", "http://a", "")),
        "certificate-authority-data": data,
    }
    user = {"token": chance.choice(("", "abc", "a\u20acb")), "client-certificate-data": _text(chance, base64.b64encode(b"certificate"))}
    whole = chance.random() < 0.5
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c" if whole else "", "cluster": cluster}],
        "users": [{"name": "u", "user": user}] if whole else None,
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}] if whole else None,
        "current-context": "x" if whole else "",
    }


def _text(chance: Chance, text: bytes) -> str:
    return (noisy(chance, text, times=1) if chance.random() < 0.2 else text).decode("latin-1")


def _kubeconfig(chance: Chance) -> bytes:
    text = json.dumps(_document(chance), ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 1))).encode()
    if chance.random() < 0.3:
        text = noisy(chance, text, times=2)
    for old, new in _EDITS:
        if chance.random() < 0.02:
            text = text.replace(old, new, 1)
    return text


_EDITS: Final = (
    (b'"server"', b'"Server"'),
    (b'"server"', b'"server": "https://other", "server"'),
    (b'"clusters"', b'"Clusters": [], "clusters"'),
    (b'"certificate-authority-data"', b'"certificate-authority-data": "", "certificate-authority-data"'),
    (b"https:", b"https\\u003a"),
    (b"https://", b"https:\\/\\/"),
    (b'"abc"', b"12"),
    (b'"abc"', b'"\\ud83d\\ude00"'),
    (b'"abc"', b'"\\ud83d"'),
    (b'"abc"', b"null"),
    (b'"abc"', b'"a\\tb\\u0000"'),
    (b'"abc"', b'"a\xe2\x80\xa8b"'),
    (b'"kind": "Config"', b'"kind": "List"'),
    (b'"users": [', b'"users": [null, '),
    (b'"users": [', b'"users": [{"name": "u"}, '),
)


def _cluster_info(chance: Chance) -> bytes:
    """A ConfigMap with arbitrary content that somebody who knows the token has signed."""
    text = _kubeconfig(chance)
    content = text.decode("utf-8", "replace")
    signature = cluster_info.detached_signature(content, TOKEN)
    if chance.random() < 0.1:
        signature = noisy(chance, signature.encode(), times=1).decode("latin-1")
    pinned = pins.pin(chance.choice(_bundles())) if chance.random() < 0.3 else _first_pin(content)
    body = {"data": {"kubeconfig": content, f"jws-kubeconfig-{TOKEN.id}": signature}}
    return pinned.removeprefix("sha256:").encode() + b"\n" + json.dumps(body).encode()


def _first_pin(content: str) -> str:
    """Return the pin of the first certificate, if it is easy to find."""
    try:
        [entry, *_] = json.loads(content)["clusters"]
        found = base64.b64decode(entry["cluster"]["certificate-authority-data"])
        return str(pins.of_bundle(found)[0])
    except Exception:  # anything may be in it
        return "00" * 32


@functools.cache
def _hub() -> tuple[bytes, oaep.RecipientKey]:
    text = _rsa().private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return text, oaep.load_recipient(keys.load(text, source="it").public_pem(), source="it")


@functools.cache
def _join_documents() -> list[dict[str, Any]]:
    found = []
    for number in range(20):
        chance = SeededRandom(number)
        names = ("10.0.0.1", "a.example", "\u00e9")[: number % 4]
        asked = JoinRequest(endpoint="https://10.0.0.1:6443" if number % 3 else "", sans=names, key=fields.new_key(chance))
        found.append(requests.write(f"n{number}", asked, recipient=_hub()[1], runtime_endpoint="r", image_endpoint="i", random=chance))
    return found


def _join_request(chance: Chance) -> bytes:
    found = chance.choice(_join_documents())
    spec = dict(found["spec"])
    name = chance.choice(tuple(spec))
    value = spec[name][0] if isinstance(spec[name], list) else spec[name]
    broken = (
        noisy(chance, value.encode(), times=1).decode("latin-1") if chance.random() < 0.8 else value + chance.choice(("=", "==", "\n", "A"))
    )
    spec[name] = [broken, *spec[name][1:]] if isinstance(spec[name], list) else broken
    return json.dumps({**found, "spec": spec if chance.random() < 0.8 else found["spec"]}).encode()


_MAKERS: Final[dict[str, tuple[Callable[[Chance], bytes], int]]] = {
    "B": (_base64, 10),
    "P": (_blocks, 25),
    "R": (_request, 30),
    "C": (_certificate, 20),
    "F": (_kubeconfig, 8),
    "I": (_cluster_info, 5),
    "J": (_join_request, 2),
}
"""How a text of each kind is generated, and how many in a hundred are of this kind."""
