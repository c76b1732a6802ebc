"""What is known of earlier requests for serving certificates, also while one node sends thousands."""

from __future__ import annotations

from datetime import timedelta

from controllers_kit import KEY, NOW, condition, request
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from serving_kit import DNS, IP, SANS, USER, serving_csr

from kubewright.apis import formats
from kubewright.base.clock import rfc3339
from kubewright.controllers import requests
from kubewright.controllers.serving.deciding import REASON
from kubewright.controllers.serving.history import MOST_COUNTED, MOST_CREDENTIALS, MOST_USES, RequestHistory
from kubewright.kube.answers import EventType, WatchEvent

TEXT = request(names=(DNS, IP))


def told(history: RequestHistory, *found: dict, kind: EventType = EventType.ADDED) -> None:
    for one in found:
        history.changed(WatchEvent(kind, one))


def sent(name: str, *, ago: float = 0.0, **fields: object) -> dict:
    return serving_csr(TEXT, name=name, created=rfc3339(NOW - timedelta(seconds=ago)), **fields)


def issued(user: str, *names: str, ends: timedelta = timedelta(days=1), number: int = 1) -> bytes:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, user)])
    sans = [x509.IPAddress(found) if (found := formats.address(one)) is not None else x509.DNSName(one) for one in names]
    builder = x509.CertificateBuilder(subject, subject, KEY.public_key(), number, NOW - timedelta(hours=1), NOW + ends)
    if sans:
        builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


def test_a_newer_open_request_supersedes_and_one_that_is_decided_or_deleted_does_not():
    history, old = RequestHistory(), requests.read(sent("old", ago=60))
    told(history, sent("old", ago=60), sent("new"))
    assert history.newer(old) == "new"
    assert history.newer(requests.read(sent("new"))) == ""
    assert history.open_requests("a") == ("old", "new")
    told(history, sent("new", conditions=[condition("Denied")]), kind=EventType.MODIFIED)
    assert history.newer(old) == ""
    told(history, sent("newest"))
    told(history, sent("newest"), kind=EventType.DELETED)
    assert history.newer(old) == ""
    assert history.open_requests("a") == ("old",)
    assert history.recent(old, now=NOW) == 2


def test_a_request_supersedes_an_earlier_one_of_the_same_second_regardless_of_names():
    history = RequestHistory()
    told(history, sent("z"), sent("a"))
    told(history, sent("z"), kind=EventType.MODIFIED)
    assert [history.newer(requests.read(sent(name))) for name in ("z", "a")] == ["a", ""]
    told(history, sent("b"), sent("a"))
    assert [history.newer(requests.read(sent(name))) in {"a", "b"} for name in ("z", "a", "b")] == [True, True, False]
    assert history.newer(requests.read(sent("not seen yet"))) == ""


def test_requests_of_the_last_hour_count_regardless_of_their_outcome():
    history, asked = RequestHistory(), requests.read(sent("x"))
    told(history, *(sent(f"r-{number}", ago=number * 600.0, conditions=[condition("Denied")]) for number in range(12)))
    assert history.recent(asked, now=NOW) == 6


def test_of_thousands_of_requests_of_one_node_a_hundred_are_counted():
    history, asked = RequestHistory(), requests.read(sent("r-0000", ago=60))
    told(history, *(sent(f"r-{number:04d}") for number in range(3000)))
    assert history.newer(asked) == "r-2999"
    assert history.recent(asked, now=NOW) == MOST_COUNTED


def test_of_the_many_signers_that_a_user_names_with_one_key_some_are_remembered():
    history = RequestHistory()
    told(history, *(sent(f"r-{number}", signer=f"example.com/s{number}") for number in range(2 * MOST_USES)))
    assert len(history.holders(requests.read(sent("x")))) == MOST_USES
    assert "example.com" in history.key_holder(requests.read(sent("x")))


def test_the_certificates_of_nodes_that_got_one_last_are_remembered():
    history = RequestHistory(most_nodes=2)
    for node in "abcb":
        made = issued(f"system:node:{node}", "10.0.0.1")
        approved = [condition("Approved", reason=REASON)]
        told(history, sent(f"serving-{node}", username=f"system:node:{node}", conditions=approved, certificate=made))
    assert [bool(history.certified(node, now=NOW)) for node in "abc"] == [False, True, True]


def test_names_in_the_newest_certificate_that_was_issued_on_our_approval_are_known_until_it_expires():
    history = RequestHistory()
    told(history, sent("by-a-person", conditions=[condition("Approved", reason="Person")], certificate=issued(USER, "a", "10.9.9.9")))
    assert history.certified("a", now=NOW) == frozenset()
    ours = [condition("Approved", reason=REASON)]
    told(history, sent("csr-1", conditions=ours, certificate=issued(USER, *SANS)))
    assert history.certified("a", now=NOW) == set(SANS)
    assert history.certified("a", now=NOW + timedelta(days=2)) == frozenset()
    assert history.certified("b", now=NOW) == frozenset()
    told(history, sent("csr-2", conditions=ours, certificate=issued("system:node:b", *SANS)))
    assert history.certified("a", now=NOW) == frozenset()
    told(history, sent("csr-3", conditions=ours, certificate=b"junk"))
    assert history.certified("a", now=NOW) == frozenset()


def test_the_last_client_certificates_of_a_node_are_known_by_their_fingerprints():
    history = RequestHistory()
    for number in range(1, MOST_CREDENTIALS + 2):
        made = issued(USER, number=number)
        told(history, serving_csr(TEXT, name=f"c-{number}", signer=requests.CLIENT_KUBELET, certificate=made))
        newest = x509.load_pem_x509_certificate(made).fingerprint(hashes.SHA256()).hex()
        assert newest in history.credentials("a")
    assert len(history.credentials("a")) == MOST_CREDENTIALS
    told(history, serving_csr(TEXT, name="junk", signer=requests.CLIENT_KUBELET, certificate=b"junk"))
    assert history.credentials("b") == frozenset()
