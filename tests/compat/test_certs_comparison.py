"""`certs` and `kubeconfig user` compared with real kubeadm on the same files: output, and every field of the results."""

from __future__ import annotations

import base64
import json
import re

import pytest
from certs_comparison import DEFAULT, INIT, Pair, find_kubeadm

import certificate_summaries as summaries
from kubewright.base import yaml
from kubewright.lifecycle.steps import renewal
from kubewright.pki import certificates, keys
from kubewright.pki.encoding import pem

EXTERNAL_ETCD = "etcd: {external: {endpoints: ['https://10.0.0.1:2379'], caFile: /a, certFile: /b, keyFile: /c}}\n"
CONFIG = ("--config", "/kubeadm.yaml")


@pytest.fixture(scope="module")
def program():
    return find_kubeadm()


@pytest.fixture(scope="module")
def unchanged(program, tmp_path_factory):
    return Pair.make(program, tmp_path_factory.mktemp("unchanged"), DEFAULT)


@pytest.fixture
def machines(unchanged, tmp_path):
    return unchanged.copy(tmp_path)


SECONDS = re.compile(r"(?<=residualTime: )\d+|(?<=\"residualTime\": )\d+")


def require_same(ours: str, theirs: str, *, within: float) -> None:
    """Require equal text; residual times may differ by the seconds in which both ran."""
    assert SECONDS.sub("0", ours) == SECONDS.sub("0", theirs)
    lengths = zip(SECONDS.findall(ours), SECONDS.findall(theirs), strict=True)
    assert all(abs(int(one) - int(other)) <= within + 1 for one, other in lengths)


# What is removed from the machine before both inspect it.
LOSSES = {
    "nothing": (),
    "super-admin.conf": ("super-admin.conf",),
    "a leaf": ("pki/apiserver.crt", "pki/etcd/peer.crt"),
    "the CA's key": ("pki/ca.key",),
    "all keys of authorities": ("pki/ca.key", "pki/etcd/ca.key", "pki/front-proxy-ca.key"),
    "a leaf's key": ("pki/apiserver.key",),
    "an unneeded file": ("pki/sa.pub",),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", ["text", "json", "yaml"])
def test_expiry_is_shown_as_by_kubeadm(machines, loss, form):
    for name in LOSSES[loss]:
        machines.remove(name)
    ours, theirs, took = machines.timed("certs", "check-expiration", *CONFIG, "-o", form)
    assert theirs.code == 0
    assert ours.code == 0
    require_same(ours.out, theirs.out, within=took)
    assert len(SECONDS.findall(ours.out)) == (0 if form == "text" else 14)


@pytest.mark.parametrize("period", ["45s", "3m30s", "59m30s", "5h3m30s", "24h1m", "49h1m", "150h1m", "200h", "9000h", "19000h", "80000h"])
def test_residual_times_are_shown_as_by_kubeadm(program, tmp_path, period):
    """On new machines until the largest unit is the same before and after kubeadm's run: a busy machine may let a minute pass."""
    seconds = re.compile(r"\d+s\b")
    config = DEFAULT + f"certificateValidityPeriod: {period}\ncaCertificateValidityPeriod: 90000h\n"
    for number in range(60):
        machines = Pair.make(program, tmp_path / str(number), config)
        before, theirs = machines.both("certs", "check-expiration", *CONFIG)
        after = machines.kubewright("certs", "check-expiration", *CONFIG)
        ours = {seconds.sub("0s", run.out) for run in (before, after)}
        if len(ours) == 1 and "<invalid>" not in after.out:
            break
    assert ours == {seconds.sub("0s", theirs.out)}
    assert "<invalid>" not in theirs.out


def test_an_external_etcd_gives_the_same_rows_as_with_kubeadm(machines):
    machines.write("kubeadm.yaml", INIT + DEFAULT + EXTERNAL_ETCD)
    ours, theirs = machines.both("certs", "check-expiration", *CONFIG)
    assert (ours, theirs.out.count("\n")) == (theirs, 12)


def summary(text: bytes) -> dict[str, object]:
    return {"blocks": [block.label for block in pem.blocks(text, source="x")], **summaries.of_certificate(certificates.parse(text)[0])}


def tree(root):
    """Every certificate, key and kubeconfig of a machine by its fields, with modes."""
    base, found = root / "etc" / "kubernetes", {}
    for path in sorted(path for path in base.rglob("*") if path.is_file()):
        name, text = str(path.relative_to(base)), path.read_bytes()
        found[name] = {"mode": path.stat().st_mode & 0o777, **fields(name, text, base)}
    return found


def fields(name, text, base):
    if name.endswith(".crt"):
        key = base / name.replace(".crt", ".key")
        fits = key.exists() and certificates.fits(certificates.first(text, source=name), keys.load(key.read_bytes(), source=name))
        return {**summary(text), "fits": fits}
    if name.endswith(".key"):
        return summaries.of_key(text, source=name)
    if not name.endswith(".conf"):
        return {}
    document = yaml.load(text)
    user = document["users"][0]["user"]
    pair = certificates.pair_of(base64.b64decode(user["client-certificate-data"]), base64.b64decode(user["client-key-data"]), source=name)
    document["users"][0]["user"] = {**summary(pair.certificate_pem()), "kind": pair.key.kind, "keys": list(user)}
    return {"order": list(document), "document": document}


RENEWALS = {
    "nothing": (),
    "the CA's key": ("pki/ca.key",),
    "two files": ("super-admin.conf", "pki/apiserver.crt"),
    "a key": ("pki/apiserver.key",),
}


@pytest.mark.parametrize("loss", RENEWALS)
@pytest.mark.parametrize("changes", ["", "certificateValidityPeriod: 100h\n"])
def test_all_certificates_are_renewed_as_by_kubeadm(machines, loss, changes):
    for name in RENEWALS[loss]:
        machines.remove(name)
    machines.write("kubeadm.yaml", INIT + DEFAULT.replace("P256", "P384") + changes)
    serials = {name: (machines.ours / "etc/kubernetes" / name).read_bytes() for name in ("pki/front-proxy-client.crt", "kubelet.conf")}
    ours, theirs = machines.both("certs", "renew", "all", *CONFIG)
    assert (ours.code, theirs.code) == (0, 0)
    assert ours.out.splitlines()[:11] == theirs.out.splitlines()[:11]
    assert len(ours.out.splitlines()) == len(theirs.out.splitlines()) == 13
    found = tree(machines.ours)
    assert len(found) == 27 - len(RENEWALS[loss]) + (loss == "a key")
    assert found == tree(machines.theirs)
    changed = {name: (machines.ours / "etc/kubernetes" / name).read_bytes() != text for name, text in serials.items()}
    assert changed == {"pki/front-proxy-client.crt": True, "kubelet.conf": False}


@pytest.mark.parametrize("name", [row.name for row in renewal.everything() if not row.optional])
def test_each_certificate_is_renewed_as_by_kubeadm(machines, name):
    ours, theirs = machines.both("certs", "renew", name, *CONFIG)
    assert ours == theirs
    assert tree(machines.ours) == tree(machines.theirs)


def test_a_renewed_certificate_has_the_names_of_the_earlier_one_whatever_the_configuration_says(machines):
    machines.write("kubeadm.yaml", INIT + DEFAULT + "apiServer: {certSANs: [new.example]}\n")
    ours, theirs = machines.both("certs", "renew", "apiserver", *CONFIG)
    assert ours == theirs
    found = [
        certificates.first((root / "etc/kubernetes/pki/apiserver.crt").read_bytes(), source="x")
        for root in (machines.ours, machines.theirs)
    ]
    assert found[0].names == found[1].names
    assert [("kubernetes" in one.names.dns, "new.example" in one.names.dns) for one in found] == [(True, False)] * 2


def test_a_bundle_is_kept_although_kubeadm_truncates_it(machines):
    """The accepted difference: kubeadm leaves one certificate in the kubeconfig (docs/compat/certs.md)."""
    other = (machines.theirs / "etc/kubernetes/pki/front-proxy-ca.crt").read_text()
    bundle = (machines.theirs / "etc/kubernetes/pki/ca.crt").read_text() + other
    machines.write("etc/kubernetes/pki/ca.crt", bundle)
    ours, theirs = machines.both("certs", "renew", "admin.conf", *CONFIG)
    assert ours == theirs
    embedded = []
    for root in (machines.ours, machines.theirs):
        document = yaml.load((root / "etc/kubernetes/admin.conf").read_bytes())
        embedded.append(base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"]))
    assert [len(certificates.parse(text)) for text in embedded] == [2, 1]


ENDPOINT = "controlPlaneEndpoint: lb.example:8443\n"


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [("ECDSA-P256", ""), ("ECDSA-P384", ""), ("RSA-2048", ""), ("RSA-3072", ""), ("ECDSA-P256", EXTERNAL_ETCD), ("ECDSA-P256", ENDPOINT)],
)
def test_requests_equal_those_of_kubeadm(machines, algorithm, more):
    more += f"encryptionAlgorithm: {algorithm}\nclusterName: other\napiServer: {{certSANs: [b.example, 10.9.9.9, A.example]}}\n"
    machines.write("kubeadm.yaml", INIT + more)
    ours, theirs = machines.both("certs", "generate-csr", *CONFIG, "--cert-dir", "/csr/pki", "--kubeconfig-dir", "/csr")
    assert (ours.code, theirs.code) == (0, 0)
    assert sorted(ours.out.replace(str(machines.ours), "").splitlines()) == sorted(theirs.out.splitlines())
    found = requests_of(machines.ours / "csr")
    assert len(found) == 24
    assert found == requests_of(machines.theirs / "csr")


def requests_of(place):
    found = {}
    for path in sorted(path for path in place.rglob("*") if path.is_file()):
        text, name = path.read_bytes(), str(path.relative_to(place))
        shown: dict[str, object] = {"mode": path.stat().st_mode & 0o777}
        if name.endswith(".csr"):
            request = summaries.of_request(text)
            shown |= {name: getattr(request, name) for name in ("subject", "names", "extensions", "key_kind", "signature_valid")}
            shown["algorithm"] = signature_algorithm(text)
        elif name.endswith(".key"):
            shown |= summaries.of_key(text, source=name)
        else:
            document = yaml.load(text)
            key = base64.b64decode(document["users"][0]["user"].pop("client-key-data"))
            shown |= {"document": document, "key": summaries.of_key(key, source=name)}
        found[name] = shown
    return found


def signature_algorithm(text):
    from cryptography import x509

    return x509.load_pem_x509_csr(text).signature_algorithm_oid.dotted_string


@pytest.mark.parametrize(
    "argv",
    [(), ("--org", "a,b"), ("--org", "b", "--org", "a"), ("--validity-period", "48h"), ("--validity-period", "9000h"), ("--token", "x.y")],
)
@pytest.mark.parametrize("endpoint", ["", "controlPlaneEndpoint: cluster.example\nclusterName: other\n"])
def test_a_kubeconfig_of_a_user_equals_that_of_kubeadm(machines, argv, endpoint):
    machines.write("kubeadm.yaml", INIT + DEFAULT + endpoint)
    ours, theirs, took = machines.timed("kubeconfig", "user", "--client-name", "ada", *CONFIG, *argv)
    assert (ours.code, theirs.code) == (0, 0)
    assert ours.out.endswith("\n\n") == theirs.out.endswith("\n\n")
    documents, lives = [yaml.load(run.out) for run in (ours, theirs)], []
    for document in documents:
        user = document["users"][0]["user"]
        if "client-certificate-data" in user:
            pair = certificates.pair_of(
                base64.b64decode(user["client-certificate-data"]), base64.b64decode(user["client-key-data"]), source="x"
            )
            shown = summary(pair.certificate_pem())
            lives.append(shown.pop("validity_seconds"))  # it starts with the CA and expires counted from the run
            document["users"][0]["user"] = {**shown, "kind": pair.key.kind}
    assert documents[0] == documents[1]
    assert not lives or abs(lives[0] - lives[1]) <= took + 1
    assert json.dumps(documents[0]) == json.dumps(documents[1])


def test_a_certificate_key_has_the_format_of_kubeadm(machines):
    ours, theirs = machines.both("certs", "certificate-key")
    shape = re.compile(r"[0-9a-f]{64}\n")
    assert shape.fullmatch(ours.out)
    assert shape.fullmatch(theirs.out)
