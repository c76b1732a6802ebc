"""Which servers discovery by token trusts with pins: real TLS, real certificates, and an attacker who knows the token."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scripted_server import ScriptedServer, Seen, json_answer

from busy import HANGS
from kubewright.base.clock import SystemClock
from kubewright.base.errors import KubewrightError, TrustError
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.discovery import token as discovery
from kubewright.discovery.token import Question, UnpinnedServer
from kubewright.http import tls
from kubewright.http.failures import NoAnswer
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.pki import pins
from kubewright.pki.pins import Pin, PinMismatch, pin
from kubewright.tokens import cluster_info
from kubewright.tokens.strings import parse

TOKEN = parse("abcdef.0123456789abcdef")
MakeServer = Callable[..., ScriptedServer]


@dataclass
class Party:
    """A party with a key and a certificate."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        plain = serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)

    @property
    def pin(self) -> Pin:
        return Pin.parse(pin(self.pem))


def party(
    name: str,
    *extensions: x509.ExtensionType,
    by: Party | None = None,
    key: ec.EllipticCurvePrivateKey | None = None,
    authority: bool = True,
    path_length: int | None = None,
    ends: timedelta = timedelta(hours=1),
) -> Party:
    """Create a certificate; one of `extensions` is critical."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=2))
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=path_length), critical=True)
        # as in kubeadm's certificates: OpenSSL distinguishes CAs of the same name by these
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key((by.key if by else key).public_key()), critical=False)
    )
    if not authority:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return Party(name, key, builder.sign(by.key if by else key, hashes.SHA256()))


def leaf(by: Party) -> Party:
    return party("kube-apiserver", by=by, authority=False)


OLD, NEW, EVIL = party("kubernetes"), party("kubernetes"), party("kubernetes")
ROOT = party("root")
MIDDLE = party("kubernetes", by=ROOT)
CROSSED = party("kubernetes", by=OLD, key=NEW.key)
WRAPPED = party("kubernetes", by=EVIL, key=OLD.key)
NODE = leaf(OLD)


def only(network: str) -> x509.NameConstraints:
    return x509.NameConstraints([x509.IPAddress(ipaddress.ip_network(network))], None)


SIGNS_NO_CERTIFICATES = x509.KeyUsage(True, False, False, False, False, False, True, False, False)
FOR_CLIENTS = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
SHORT = party("short", path_length=0)
ONE_BELOW = party("one below", path_length=1)
MAY_SIGN = party("may sign", by=ONE_BELOW)
HERE = party("here", only("127.0.0.0/8"))
LAST = party("last", by=ONE_BELOW, path_length=0)
NAMES = party("names", only("10.0.0.0/8"))
CORNER = party("corner", only("10.0.0.0/8"), by=ROOT)
CLIENTS = party("clients", FOR_CLIENTS)
SIGNS_LISTS = party("lists", SIGNS_NO_CERTIFICATES)
ENDED = party("ended", ends=timedelta(hours=-1))
STRANGE = party("strange", x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0"))


@pytest.fixture
def ask(make_server: MakeServer) -> Iterator[Callable[..., tuple[Access, ScriptedServer]]]:
    """Discover at a server with a certificate of `by`, whose cluster-info contains `bundle`, with the pins `pinned`."""
    servers: list[ScriptedServer] = []

    def run(
        bundle: list[Party], *, by: Party, pinned: list[Party], itself: bool = False, shows: list[Party] | None = None
    ) -> tuple[Access, ScriptedServer]:
        shown = by if itself else leaf(by)
        chain = b"".join(one.pem for one in (shown, *(shows or ())))
        server = make_server(context=tls.server_context(chain, shown.key_pem))
        servers.append(server)
        text = cluster_info.config_map(server=server.url, ca_pem=b"".join(one.pem for one in bundle))["data"]["kubeconfig"]
        data = {"kubeconfig": text, f"jws-kubeconfig-{TOKEN.id}": cluster_info.detached_signature(text, TOKEN)}

        def handler(_: Seen):
            return json_answer({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info"}, "data": data})

        server.handler = handler
        question = Question(server=server.url, token=TOKEN, pins=[one.pin for one in pinned], within=HANGS)
        clock = SystemClock()
        found = discovery.discover(
            question,
            connect=lambda access: KubeClient(access, timeout=HANGS),
            waiter=PollingWaiter(clock=clock, reporter=SilentReporter()),
            clock=clock,
        )
        return found, server

    yield run
    for server in servers:
        assert all("authorization" not in seen.headers for seen in server.seen)


BELIEVED = {
    "one CA": ([OLD], OLD, [OLD]),
    "the pinned CA several times": ([OLD, OLD, OLD], OLD, [OLD]),
    "a change of CA, both pinned, the server has the old one's": ([OLD, NEW], OLD, [OLD, NEW]),
    "a change of CA, both pinned, the server has the new one's": ([OLD, NEW], NEW, [OLD, NEW]),
    "a change of CA that the join command does not know yet": ([NEW, OLD], OLD, [OLD]),
    "a pinned intermediate before its root": ([MIDDLE, ROOT], MIDDLE, [MIDDLE]),
    "a pinned root, and the server shows its certificate alone": ([MIDDLE, ROOT], MIDDLE, [ROOT]),
    "a new CA that the pinned one has signed": ([NEW, CROSSED, OLD], NEW, [OLD]),
    "a CA that a pinned one with room for it has signed": ([LAST, ONE_BELOW], LAST, [ONE_BELOW]),
    "a CA two below the pinned one": ([(deep := party("deep", by=MIDDLE)), MIDDLE, ROOT], deep, [ROOT]),
}


@pytest.mark.parametrize("case", BELIEVED)
def test_a_server_with_a_certificate_of_a_pinned_ca_is_trusted_with_its_bundle(ask, case: str) -> None:
    bundle, by, pinned = BELIEVED[case]
    found, server = ask(bundle, by=by, pinned=pinned)
    assert found.ca_pem == b"".join(one.pem for one in bundle)
    assert found.server == server.url
    assert len(server.seen) == 2


REFUSED = {
    "another CA behind the pinned one": ([OLD, EVIL], EVIL, [OLD]),
    "another CA before the pinned one": ([EVIL, OLD], EVIL, [OLD]),
    "another certificate with the pinned key": ([WRAPPED, EVIL], EVIL, [OLD]),
    "the pinned CA below another one": ([WRAPPED, OLD, EVIL], EVIL, [OLD]),
    "a certificate signed with a pinned key that is no CA's": ([NODE, party("kubernetes", by=NODE)], NODE, [NODE]),
    "a CA signed with a pinned key that is no CA's": ([NODE, (below := party("below", by=NODE))], below, [NODE]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_knowing_the_token_is_not_enough_to_impersonate_the_cluster(ask, make_server: MakeServer, case: str) -> None:
    """The bundle contains a pinned CA, which anybody can add who has seen it; the server has a certificate of another one."""
    bundle, by, pinned = REFUSED[case]
    with pytest.raises(UnpinnedServer) as caught:
        ask(bundle, by=by, pinned=pinned)
    assert isinstance(caught.value, TrustError)
    assert "127.0.0.1" in str(caught.value)
    assert "token create --print-join-command" in caught.value.remedy


BEYOND = {
    "a CA below one that may have none": (1, [party("below", by=SHORT), SHORT]),
    "two CAs below one that may have one": (1, [party("below", by=MAY_SIGN), MAY_SIGN, ONE_BELOW]),
    "a CA below the last one": (2, [party("below", by=LAST), LAST, ONE_BELOW]),
    "a CA below one with names of its own": (1, [party("below", by=NAMES), NAMES]),
    "a CA for other names": (2, [CORNER, ROOT]),
    "a CA below one for other names": (2, [party("below", by=CORNER), CORNER, ROOT]),
    "a CA below one for clients": (1, [party("below", by=CLIENTS), CLIENTS]),
    "a CA below one that signs no certificates": (1, [party("below", by=SIGNS_LISTS), SIGNS_LISTS]),
    "a CA below one that has expired": (1, [party("below", by=ENDED), ENDED]),
    "a CA below one that is limited in a way nobody knows": (1, [party("below", by=STRANGE), STRANGE]),
}
"""Chains from the CA that signs for the server up to the pinned one, in which one exceeds the limits set above it.

And how many of the last ones may be trusted alone.
"""


@pytest.mark.parametrize("shown", [False, True], ids=["in the bundle", "shown by the server too"])
@pytest.mark.parametrize("case", BEYOND)
def test_a_ca_that_exceeds_the_limits_above_it_is_not_trusted(ask, case: str, shown: bool) -> None:
    anchors, (signer, *above) = BEYOND[case]
    bundle = b"".join(one.pem for one in (signer, *above))
    believed = pins.require(bundle, [above[-1].pin], server="https://a", now=datetime.now(UTC))
    assert sorted(pins.of_bundle(believed), key=str) == sorted((one.pin for one in (signer, *above)[-anchors:]), key=str)
    with pytest.raises(UnpinnedServer if anchors <= len(above) else NoAnswer, match=r"trusted|does not prove"):
        ask([signer, *above], by=signer, pinned=[above[-1]], shows=[signer, *above[:-1]] if shown else [])


@pytest.mark.parametrize(("pinned", "signer"), [(ONE_BELOW, MAY_SIGN), (HERE, party("below", by=HERE))])
def test_a_ca_with_limits_above_it_must_be_presented_by_the_server(ask, pinned: Party, signer: Party) -> None:
    """As an anchor it would be free of the limits above it; in a presented chain, OpenSSL enforces them."""
    found, _ = ask([signer, pinned], by=signer, pinned=[pinned], shows=[signer])
    assert found.ca_pem == signer.pem + pinned.pem
    with pytest.raises(UnpinnedServer):
        ask([signer, pinned], by=signer, pinned=[pinned])


def test_a_reissued_certificate_of_a_pinned_key_does_not_lift_limits(ask) -> None:
    wrapped, below = party("short", by=EVIL, key=SHORT.key), party("below", by=SHORT)
    with pytest.raises(UnpinnedServer):
        ask([wrapped, SHORT, below], by=below, pinned=[SHORT], shows=[below])


def test_a_pinned_certificate_that_is_no_ca_proves_only_itself(ask) -> None:
    node = leaf(OLD)
    found, server = ask([node], by=node, pinned=[node], itself=True)
    assert (found.ca_pem, len(server.seen)) == (node.pem, 2)


def test_a_single_pinned_ca_that_is_not_that_of_the_server_is_reported(ask) -> None:
    with pytest.raises(NoAnswer, match="not trusted"):
        ask([OLD], by=EVIL, pinned=[OLD])
    with pytest.raises(PinMismatch):
        ask([EVIL], by=EVIL, pinned=[OLD])
    with pytest.raises(KubewrightError):
        ask([EVIL, NEW], by=EVIL, pinned=[OLD])
