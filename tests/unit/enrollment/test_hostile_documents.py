"""Anything from others (requests, answers, objects, manifests) is either read, or refused with an error of ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hub_kit import API_CA, CLIENT_CA, CLOCK, cluster
from hypothesis import given
from hypothesis import strategies as st
from old_peer import OldHub, OldNode, lock
from oneinfra_kit import with_vpn

from kubewright.base import yaml
from kubewright.base.errors import KubewrightError, TrustError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace, shallow
from kubewright.enrollment.hub import issuing, oneinfra_clusters, tenant_objects
from kubewright.enrollment.node import answer_checks, kubelet_fields
from kubewright.enrollment.node.answer_checks import CheckedAnswer, Expected
from kubewright.enrollment.protocol import decisions, fields, requests
from kubewright.enrollment.protocol.decisions import Approval, Policy
from kubewright.enrollment.protocol.fields import MalformedField, SymmetricKey
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.kube.daemons import known_nodes
from kubewright.pki import keys
from kubewright.pki.keys import FreshKeys
from odd_objects import changed, paths, variants

KEY = SymmetricKey(b"000102030405060708090a0b0c0d0e0f")
HUB = OldHub()
JOIN_KEY = keys.load(HUB.private_pem, source="the join key")
ENDPOINT = "https://10.0.0.1:6443"
EXPECTED = Expected(node="worker", server=ENDPOINT, ca_pem=API_CA[0].encode(), sans=(), now=CLOCK.now())
LOADED = LoadedCluster(cluster(key_algorithm="ECDSA-P256"))
ANSWER = issuing.issue(
    LOADED,
    "worker",
    JoinRequest(endpoint=ENDPOINT, key=KEY),
    key_source=FreshKeys(),
    started=CLOCK.now(),
    random=SeededRandom(1),
).answer
TEXTS = sorted(set(shallow(ANSWER)) - {"tunnel"})

words = st.text(max_size=40) | st.sampled_from(
    [
        "\0",
        "\ud800",
        "\n",
        "::1",
        "0",
        "-1",
        "9" * 400,
        "10.0.0.0/33",
        "https://[",
        "*",
        "&a *a",
        "!!python/object:x",
        "- " * 500,
        "{" * 500,
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words
documents = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8)


GOOD = OldNode("worker", ENDPOINT, ("10.0.0.5",), key=KEY.content).request(HUB.public_pem)
plain = words.filter(lambda text: text.isprintable() or text.isascii())


@given(st.sampled_from(["symmetricKey", "apiServerEndpoint", "extraSANs", "vpnPublicKey", "imageServiceEndpoint"]), documents)
def test_a_request_with_any_single_field_is_read_or_refused(name, value):
    for read in (lambda found: requests.read(found, join_key=JOIN_KEY), lambda found: requests.reread(found, KEY)):
        try:
            found = read({**GOOD, "spec": {**GOOD["spec"], name: value}})
        except MalformedField:
            continue
        assert found.key == KEY


@given(st.lists(st.text(max_size=300), max_size=18), st.text(max_size=350), st.booleans())
def test_any_request_is_admitted_or_refused_with_a_reason(sans, endpoint, crowded):
    spec = {**GOOD["spec"], "apiServerEndpoint": locked(endpoint), "extraSANs": [locked(san) for san in sans]}
    seen = decisions.look({"metadata": {"name": "worker"}, "spec": spec})
    try:
        contents: JoinRequest | MalformedField = requests.read({"spec": spec}, join_key=JOIN_KEY)
    except MalformedField as error:
        contents = error
    outcome = decisions.decide(replace(seen, contents=contents), None, Policy(crowded=crowded), CLOCK.now())
    if isinstance(outcome, decisions.Refuse):
        assert outcome.reason
        assert outcome.message.isprintable()
        assert len(outcome.message) < 1000
    else:
        assert isinstance(outcome, decisions.Issue)
        issuing.issue(LOADED, "worker", outcome.request, key_source=Same(), started=CLOCK.now(), random=SeededRandom(1))


class Same:
    """One key for all."""

    key = keys.generate(keys.Algorithm.ECDSA_P256)

    def take(self, _: object) -> Any:
        return self.key


def locked(text: str) -> str:
    return lock(text.encode(errors="replace").decode(), KEY.content)


names = st.text(st.characters(codec="utf-8"), max_size=20)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "name": names,
        "uid": names,
        "labels": st.dictionaries(names, names, max_size=3),
        "annotations": st.dictionaries(names, names, max_size=3),
        "finalizers": st.lists(names, max_size=3),
        "ownerReferences": st.lists(st.dictionaries(names, names, max_size=3), max_size=2),
        "creationTimestamp": names | st.none(),
        "deletionTimestamp": names,
    },
)
conditions = st.lists(st.dictionaries(st.sampled_from(["type", "status", "reason", "lastTransitionTime"]), names), max_size=3)


@given(metadata, conditions | documents, documents, st.sampled_from(Approval))
def test_objects_with_any_content_are_read_or_refused(head, found, spec, approval):
    seen = decisions.look({"metadata": head, "status": {"conditions": found}, "spec": spec})
    decisions.decide(seen, None, Policy(approval=approval), CLOCK.now())


@given(st.sampled_from(TEXTS), st.text(max_size=300) | documents.map(lambda value: yaml.dump(value) if clean(value) else "{"))
def test_an_answer_with_any_single_text_is_accepted_or_refused(name, text):
    try:
        require_harmless(answer_checks.checked(replace(ANSWER, **{name: text}), EXPECTED))
    except TrustError as error:
        assert error.what.endswith("that the hub sent cannot be used")


def require_harmless(found: CheckedAnswer) -> None:
    """Whatever the hub has answered, the written files name one requested server, one CA, one certificate, and only fields that a hub may set."""
    kubeconfig = yaml.load(found.kubeconfig.decode())
    [cluster], [user] = kubeconfig["clusters"], kubeconfig["users"]
    assert sorted(cluster["cluster"]) == ["certificate-authority-data", "server"]
    assert (cluster["cluster"]["server"], cluster["name"], user["name"]) == (ENDPOINT, "kubernetes", "system:node:worker")
    assert sorted(user["user"]) == ["client-certificate-data", "client-key-data"]
    assert leaves(found.kubelet) <= set(kubelet_fields.ROWS)


def leaves(value: Any, before: str = "") -> set[str]:
    """The paths of a document down to the fields with a row."""
    if before.removesuffix(".") in kubelet_fields.ROWS or not isinstance(value, dict):
        return {before.removesuffix(".")}
    return {path for name, part in value.items() for path in leaves(part, f"{before}{name}.")}


@given(st.sampled_from(["kubeconfig", "kubelet_config"]), st.data())
def test_an_answer_with_any_single_value_is_accepted_or_refused(name, data):
    document = yaml.load(getattr(ANSWER, name))
    value = data.draw(documents.filter(clean))
    text = yaml.dump(changed(document, data.draw(st.sampled_from(paths(document))), value))
    try:
        require_harmless(answer_checks.checked(replace(ANSWER, **{name: text}), EXPECTED))
    except TrustError as error:
        assert error.what.endswith("that the hub sent cannot be used")


def clean(value: Any) -> bool:
    """Whether a value can be written as YAML."""
    try:
        yaml.dump(value).encode()
    except Exception:
        return False
    return True


MANIFEST = with_vpn()
EVERYWHERE = paths(MANIFEST)


@given(st.sampled_from(EVERYWHERE), documents.filter(clean))
def test_a_cluster_of_oneinfra_with_any_single_value_is_read_or_refused(path, value):
    text = yaml.dump(changed(MANIFEST, path, value)).encode()
    try:
        found = yaml.load_all(text, source="clusters.yaml")
        oneinfra_clusters.read(found, now=CLOCK.now(), token_life=timedelta(hours=1), random=SeededRandom(2))
    except KubewrightError as error:
        assert CLIENT_CA[1].splitlines()[1] not in f"{error}{error.detail}"


addresses = st.lists(st.dictionaries(st.sampled_from(["type", "address"]), names, max_size=2), max_size=3)


@given(names, st.dictionaries(st.sampled_from(["kubernetes.io/hostname", "x"]), names), st.none() | addresses)
def test_nodes_with_any_content_are_read(name, labels, reported):
    found = known_nodes.claims_of({"metadata": {"name": name, "labels": labels}, "status": {"addresses": reported}})
    assert "" not in found.certain | found.reported
    known_nodes.addresses_of({"subsets": [{"addresses": reported}]})


NODE = {"metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "h"}}, "status": {"addresses": [{"address": "10.0.0.1"}]}}
ENDPOINTS = {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}]}]}


def test_malformed_values_of_nodes_and_endpoints_count_as_missing():
    assert len([known_nodes.claims_of(known_nodes.slim(node)) for node in variants(NODE)]) == 80
    found = [known_nodes.addresses_of(endpoints) for endpoints in variants(ENDPOINTS)]
    assert (len(found), known_nodes.addresses_of(ENDPOINTS)) == (80, {"10.0.0.1", "10.0.0.2"})
    assert known_nodes.addresses_of({"subsets": [None, *ENDPOINTS["subsets"]]}) == {"10.0.0.1", "10.0.0.2"}


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["token-id", "token-secret", "expiration", "auth-extra-groups"]), words, max_size=4), max_size=3
    )
)
def test_foreign_secrets_are_ignored(contents):
    found = [
        {"metadata": {"name": f"bootstrap-token-{number}"}, "type": "bootstrap.kubernetes.io/token", "data": data}
        for number, data in enumerate(contents)
    ]
    assert tenant_objects.token_changes(found, ()) == tenant_objects.TokenChanges()


@given(st.binary(max_size=80))
def test_any_join_key_file_is_read_or_refused(content):
    try:
        assert fields.usable_key(content, name="x").content == content
    except MalformedField as error:
        assert str(len(content)) in str(error)
