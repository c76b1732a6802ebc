"""Generated requests for serving certificates with generated evidence, and a judge that shares no code with the checks.

Requests are odd in few ways at a time, so that each check decides about some; a fifth is raw DER, damaged or random. The
judge reads requests with the X.509 library, and names and addresses with `ipaddress` and a regular expression.
"""

from __future__ import annotations

import functools
import ipaddress
import random
import re
from collections import Counter
from datetime import timedelta
from typing import Any, Final

import hostile_requests
from controllers_kit import KEY, NODES, NOW, SERVING_USAGES, condition, extension, request
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from serving_kit import DNS, IP, SANS, USER, policy, serving

from kubewright.apis import formats, node_approval
from kubewright.base.clock import rfc3339
from kubewright.base.records import replace
from kubewright.controllers.requests import Nothing, SigningRequest
from kubewright.controllers.serving import deciding
from kubewright.controllers.serving.deciding import Approve, Ask, Deny, Wait
from kubewright.controllers.serving.evidence import Answer, Evidence, Fetched, KnownNode, Membership

OWN: Final = frozenset((*SANS, "a.nodes.example.com", "2001:db8::7"))
_V6: Final = ("ip", ipaddress.ip_address("2001:db8::7").packed)
_NAMES: Final = (
    *(DNS, IP, _V6, ("dns", "a.nodes.example.com")),
    *(("dns", "b"), ("ip", b"\x0a\x01\x00\x08"), ("ip", b"\0" * 10 + b"\xff\xff\x0a\x01\x00\x08"), ("dns", "auth.example.com")),
    *(("dns", "localhost"), ("dns", "kubernetes.default.svc"), ("dns", "x.svc.cluster.local"), ("dns", "api.example.com")),
    *(("ip", b"\x7f\0\0\1"), ("ip", b"\0" * 15 + b"\1"), ("ip", b"\xa9\xfe\0\1"), ("ip", b"\xe0\0\0\1"), ("ip", b"\x0a\x09\0\1")),
    *(("dns", "*.a"), ("dns", "A"), ("dns", "a."), ("dns", ""), ("dns", "10.1.0.8"), ("dns", b"\xc3\xa4"), ("dns", "x" * 64 + ".a")),
    *(("ip", b"\x0a\x02\x00\x01"), ("ip", b"\x0a\x03\x00\x01"), ("dns", "a.elsewhere.example")),
    *(("email", "a@b"), ("uri", "https://a"), (0xA4, b"\x30\x00"), (0x88, b"\x2a"), ("ip", b"\1")),
)
_WIDE: Final = tuple(("ip", bytes((10, 1, 7, number))) for number in range(17))
_SUBJECTS: Final = (
    (("2.5.4.10", NODES), ("2.5.4.3", "system:node:c")),  # no generated requester, because the evidence is that of `a`
    (("2.5.4.3", USER),),
    (("2.5.4.10", NODES), ("2.5.4.10", "system:masters"), ("2.5.4.3", USER)),
    (("2.5.4.10", NODES), ("2.5.4.3", USER), ("2.5.4.5", "1")),
    (("2.5.4.10", NODES + " "), ("2.5.4.3", USER)),
)
_NODE: Final = (("2.5.4.10", NODES), ("2.5.4.3", USER))
_USAGES: Final = (
    *(("server auth",), ("digital signature", "server auth", "client auth"), ("digital signature", "key encipherment", "server auth")),
    *((), ("digital signature", "server auth", "server auth"), ("Server Auth", "digital signature")),
)
_EXTENSIONS: Final = {
    "usage": extension("2.5.29.15", b"\x03\x02\x07\x80"),
    "no CA": extension("2.5.29.19", b"\x30\x00"),
    "CA": extension("2.5.29.19", b"\x30\x03\x01\x01\xff"),
    "CA of some depth": extension("2.5.29.19", b"\x30\x06\x01\x01\xff\x02\x01\x00"),
    "certificate signing": extension("2.5.29.15", b"\x03\x02\x02\x84"),
    "constrained": extension("2.5.29.30", b"\x30\x00"),
    "unknown": extension("1.2.3.4", b"\x05\x00"),
}
_WEAK: Final = ec.generate_private_key(ec.SECP224R1())
_PLAIN: Final = replace(policy(), node_networks=(), dns_suffixes=())
_BOUND: Final = replace(policy(), node_networks=tuple(formats.subnets("10.1.0.0/16,2001:db8::/32")), dns_suffixes=("nodes.example.com",))
POLICIES: Final = (
    _PLAIN,
    _BOUND,
    replace(_PLAIN, renewal=node_approval.CERTIFICATE),
    replace(_BOUND, renewal=node_approval.CERTIFICATE),
)
_DNS: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_TOLERATED: Final = {"2.5.29.15", "2.5.29.37", "2.5.29.19", "2.5.29.17"}
Case = tuple[SigningRequest, Evidence, node_approval.NodeApprovalPolicy]


def generated(chance: random.Random) -> Case:
    """Return a request, the evidence about it, and a policy."""
    odd = functools.partial(_is_odd, chance)
    fields: dict[str, Any] = {
        "username": chance.choice(("system:node:b", "system:bootstrap:abcdef", "system:node:", "system:node:A", "")) if odd() else USER,
        "groups": chance.choice(((), ("system:bootstrappers",))) if odd() else (NODES, "system:authenticated"),
        "usages": chance.choice(_USAGES) if odd() else SERVING_USAGES,
        "expiration": chance.choice((2160 * 3600 + 1, 2**31 - 1)) if odd() else chance.choice((None, 600, 2160 * 3600)),
        "created": rfc3339(NOW - chance.choice((timedelta(minutes=11), timedelta(hours=25)))) if odd(0.1) else "2026-01-02T03:04:05Z",
        "conditions": [condition(chance.choice(("Approved", "Denied", "Failed")))] if odd(0.02) else (),
    }
    text = chance.choice(hostile_requests.KINDS)(chance) if odd(0.2) else _text(*_parts(chance))
    return serving(text, **fields), _evidence(chance), chance.choice(POLICIES)


def _is_odd(chance: random.Random, share: float = 0.04) -> bool:
    return chance.random() < share


def _parts(chance: random.Random) -> tuple[Any, ...]:
    odd = functools.partial(_is_odd, chance)
    names = [IP, *chance.choice(((), (DNS,), (DNS, _V6), (("dns", "a.nodes.example.com"),)))]
    while odd(0.15):
        names.insert(chance.randrange(len(names) + 1), chance.choice(_NAMES))
    if odd(0.02):
        names = chance.choice(([DNS], list(_WIDE), [*_WIDE[:3], *_WIDE[:1]], [IP, *(("dns", f"a{number}") for number in range(5))], []))
    around = chance.choice(("text", "twice", "more")) if odd() else ""
    extras = tuple(chance.sample(sorted(_EXTENSIONS), 1)) if odd(0.1) else ()
    return tuple(names), chance.choice(_SUBJECTS) if odd() else _NODE, extras, odd(0.03), not odd(0.03), around


@functools.lru_cache(maxsize=20_000)
def _text(names: tuple[Any, ...], subject: tuple[Any, ...], extras: tuple[str, ...], weak: bool, good: bool, around: str) -> bytes:
    key = _WEAK if weak else KEY
    made = request(names=names, subject=subject, extensions=[_EXTENSIONS[one] for one in extras], key=key, good=good)
    return {"": made, "text": b"a\n" + made, "twice": made + made, "more": made + b"x"}[around]


def _evidence(chance: random.Random) -> Evidence:
    odd = functools.partial(_is_odd, chance)
    owned = dict.fromkeys(OWN, chance.choice(("file", "nodes")))
    for san in chance.sample(sorted(OWN), 2) if odd(0.1) else ():
        del owned[san]
    found = Evidence(
        node=None if odd() else KnownNode(name="a", reported=OWN - set(chance.sample(sorted(OWN), odd())), deleting=odd(0.02)),
        owned=owned,
        foreign={"b": "b", "10.1.0.8": "b"} | ({"10.1.0.7": "b"} if odd(0.02) else {}),
        reported={"2001:db8::7": "b"} if odd(0.05) else {},
        api_servers=frozenset({"10.1.0.100"} | ({"10.1.0.7"} if odd(0.02) else set())),
        networks=tuple(formats.subnets("10.1.0.0/24" if odd(0.02) else "10.96.0.0/12")),
        pods=tuple(formats.subnets("10.1.0.0/24" if odd(0.04) else "10.244.0.0/16")),
        listed=frozenset({"10.1.0.7"} if odd(0.2) else ()),
        key_holder="system:node:b for kubernetes.io/kubelet-serving" if odd() else "",
        newer="csr-2" if odd() else "",
        recent=13 if odd() else 1,
        certified=OWN if odd(0.2) else frozenset(),
        fetched=None,
    )
    return found if odd(0.1) else found.completed(_fetched(chance, frozenset(owned)))


def _fetched(chance: random.Random, owned: frozenset[str]) -> Fetched:
    odd = functools.partial(_is_odd, chance)
    answers = (
        Answer(source="joinRecords", **_membership(chance)),
        Answer(source="webhook", problem="no answer within 5s") if odd(0.2) else Answer(source="webhook", gives=owned),
        Answer(source="machines", foreign={"10.1.0.7": "b"} if odd(0.02) else {}),
    )
    addresses = frozenset({"10.1.0.7"})
    resolved = {
        "a": chance.choice((None, frozenset(), frozenset({"10.1.0.8"}), frozenset({"10.1.0.7", "10.2.0.1"}))) if odd(0.12) else addresses
    }
    present = {"10.1.0.7": "system:node:b" if odd() else USER} if odd(0.5) else {}
    return Fetched(answers=answers, resolved=resolved, present=present, present_names=OWN if odd(0.1) else frozenset())


def _membership(chance: random.Random) -> dict[str, Any]:
    if chance.random() > 0.12:
        return {"membership": Membership.MEMBER}
    return {"problem": "locked"} if chance.random() < 0.25 else {"membership": chance.choice(tuple(Membership))}


def judge(case: Case) -> str:
    """Decide about a request, and judge the decision. Returns the check that decided, or the outcome; raises if an approval breaks a rule."""
    csr, evidence, found = case
    decision = deciding.decide(csr, evidence, found, now=NOW)
    match decision:
        case Approve():
            _require_rules(csr, evidence, found)
            return "approved"
        case Deny(check=check, message=message) | Wait(check=check, message=message):
            assert message.isprintable()
            assert len(message) < 600, message
            return check
        case Ask():
            assert evidence.fetched is None
            return "asked"
        case Nothing():
            assert csr.conditions
            return "nothing"


def _require_rules(csr: SigningRequest, evidence: Evidence, found: node_approval.NodeApprovalPolicy) -> None:
    text = csr.request
    assert text.count(b"-----BEGIN") == 1
    assert text.strip().startswith(b"-----BEGIN CERTIFICATE REQUEST-----")
    assert text.strip().endswith(b"-----END CERTIFICATE REQUEST-----")
    assert len(text) <= 8192
    parsed = x509.load_pem_x509_csr(text)
    assert parsed.is_signature_valid
    key = parsed.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name != "secp224r1"
    pairs = [(one.oid.dotted_string, one.value) for part in parsed.subject.rdns for one in part]
    assert sorted(pairs) == sorted([("2.5.4.10", NODES), ("2.5.4.3", csr.username)])
    assert csr.username == "system:node:a"
    assert NODES in csr.groups
    assert sorted(csr.usages) == ["digital signature", "server auth"]
    assert csr.expiration_seconds is None or csr.expiration_seconds <= 2160 * 3600
    assert {one.oid.dotted_string for one in parsed.extensions} <= _TOLERATED
    assert not any(isinstance(one.value, x509.BasicConstraints) and one.value.ca for one in parsed.extensions)
    assert not any(isinstance(one.value, x509.KeyUsage) and one.value.key_cert_sign for one in parsed.extensions)
    names = list(parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    dns = [one.value for one in names if isinstance(one, x509.DNSName)]
    addresses = [one.value for one in names if isinstance(one, x509.IPAddress)]
    assert len(dns) + len(addresses) == len(names)
    assert 1 <= len(addresses) <= 16
    assert len(dns) <= 4
    assert all(_DNS.fullmatch(name) and len(name) <= 253 for name in dns)
    _require_own({*dns, *map(str, addresses)}, evidence, found)


def _require_own(sans: set[str], evidence: Evidence, found: node_approval.NodeApprovalPolicy) -> None:
    assert evidence.fetched is not None
    assert sans <= OWN
    assert evidence.node is not None
    assert not evidence.node.deleting
    assert sans <= evidence.node.reported
    present = set(evidence.certified | evidence.fetched.present_names)
    renewed = found.renewal == "certificate" and sans <= present
    assert renewed or sans <= set(evidence.owned)
    if not renewed and any(one.problem for one in evidence.fetched.answers):
        assert not [san for san in sans if evidence.owned[san] == "nodes"]
    assert not sans & ({*evidence.foreign} | (evidence.api_servers - evidence.listed))
    assert not sans & {san for san in evidence.reported if evidence.owned.get(san) in {None, "nodes"}}
    for address in (ipaddress.ip_address(san) for san in sans if san[0].isdigit() or ":" in san):
        assert not any(address in network for network in evidence.networks if network.version == address.version)
        certain = str(address) in evidence.listed or evidence.owned.get(str(address)) not in {None, "file", "nodes"}
        assert certain or not any(address in network for network in evidence.pods if network.version == address.version)
    members = [one.membership for one in evidence.fetched.answers if one.source == "joinRecords"]
    assert members == [Membership.MEMBER]
    assert set(evidence.fetched.present.values()) <= {"system:node:a"}
    assert (evidence.key_holder, evidence.newer) == ("", "")
    assert evidence.recent <= 12
    if not renewed:
        [resolved] = evidence.fetched.resolved.values()
        assert resolved == {"10.1.0.7"}


def outcomes(seed: int, count: int) -> Counter[str]:
    """Judge this many requests, and count what decided. A failure names the request."""
    chance, found = random.Random(seed), Counter[str]()
    for number in range(count):
        case = generated(chance)
        try:
            found[judge(case)] += 1
        except Exception as error:
            raise AssertionError(f"request {number} of seed {seed}: {error!r}: {case[0]} {case[0].request!r} {case[1]}") from error
    return found
