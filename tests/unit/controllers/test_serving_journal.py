"""Lines of the journal: what they say about a decision, and that nothing of a requester in them is long."""

from __future__ import annotations

import json

from controllers_kit import NODES, NOW, request
from hypothesis import given
from hypothesis import strategies as st
from serving_kit import DNS, IP, evidence, policy, serving_csr

from kubewright.base.records import replace
from kubewright.controllers import requests
from kubewright.controllers.serving import journal
from kubewright.controllers.serving.deciding import decide

LONG = 64


def line(found: dict) -> dict:
    csr = requests.read(found)
    verdict = journal.verdict(decide(csr, evidence(), policy(), now=NOW), by="servingapproving", policy="v1")
    assert verdict is not None
    return json.loads(journal.line(csr, found, verdict, now=NOW))


def test_an_approval_names_the_request_its_key_and_the_policy():
    found = serving_csr()
    found["metadata"] |= {"uid": "uid-1", "resourceVersion": "7"}
    found["spec"]["extra"] = {"authentication.kubernetes.io/credential-id": ["X509SHA256=ab"]}
    told = line(found)
    key = told.pop("key")
    assert len(key) == 64
    assert told == {
        "time": "2026-01-02T03:04:05Z",
        "by": "servingapproving",
        "outcome": "approve",
        "policy": "v1",
        "request": "csr-1",
        "uid": "uid-1",
        "resourceVersion": "7",
        "signer": "kubernetes.io/kubelet-serving",
        "requester": "system:node:a",
        "credential": "X509SHA256=ab",
        "names": ["a", "10.1.0.7"],
    }


def test_a_denial_names_the_check():
    told = line(serving_csr(usages=("server auth",)))
    assert (told["outcome"], told["check"], told["reason"]) == ("deny", "S5", "Usages")
    assert told["message"].startswith("the usages must be")


def test_nothing_is_recorded_where_nothing_was_decided():
    csr = replace(requests.read(serving_csr()), signer="example.com/x")
    assert journal.verdict(decide(csr, evidence(), policy(), now=NOW), by="x", policy="v1") is None


@given(
    kind=st.sampled_from(["dns", "email", "uri"]),
    text=st.text("abcdefgh.-", min_size=LONG + 1, max_size=300),
    where=st.sampled_from(["san", "subject", "username", "signer", "name", "group", "pem"]),
)
def test_no_unchecked_text_of_more_than_64_characters_is_in_a_line_or_a_condition(kind, text, where):
    subject = (("2.5.4.10", NODES), ("2.5.4.3", text if where == "subject" else "system:node:a"))
    names = (DNS, IP, (kind, text)) if where == "san" else (DNS, IP)
    body = text.encode() if where == "pem" else request(names=names, subject=subject)
    found = serving_csr(body, **({"username": text} if where == "username" else {}))
    if where == "signer":
        found["spec"]["signerName"] = "kubernetes.io/kubelet-serving"
        found["spec"]["extra"] = {"authentication.kubernetes.io/credential-id": [text]}
    if where == "name":
        found["metadata"]["name"] = text
    if where == "group":
        found["spec"]["groups"] = [NODES, text]
    csr = requests.read(found)
    decision = decide(csr, evidence(), policy(), now=NOW)
    verdict = journal.verdict(decision, by="servingapproving", policy="v1")
    assert verdict is not None
    told = journal.line(csr, found, verdict, now=NOW) + verdict.message
    assert text[: LONG + 1] not in told
