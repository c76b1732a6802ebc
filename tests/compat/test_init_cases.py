"""`kubewright init --dry-run` beside kubeadm v1.36.2: seven configurations, with the facts of the host that the data comes from."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.detected import Detected
from kubewright.base import yaml
from kubewright.cli import init as command
from kubewright.cli.main import main
from kubewright.host.decide import roots
from kubewright.host.facts import Facts, Machine
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.lifecycle.init import dry_run_directory
from kubewright.pki import bundles, certificates, keys, pairs, pem, summaries

REFERENCE = Path(__file__).parents[1] / "data" / "reference" / "cases"
CASES = ("ipv4-minimal", "extra-everything", "external-etcd", "dual-stack", "ipv6-only", "ecdsa-p256", "custom-paths-sans")
FACTS = Facts(
    detected=Detected(
        host_name="node1",
        default_ipv4="10.98.0.11",
        default_ipv6="fd00:98::11",
        cri_sockets=("unix:///var/run/containerd/containerd.sock",),
        ca_directories=("/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"),
    ),
    machine=Machine(),
)
UPLOADED = frozenset(CASES) - {"external-etcd"}
"""Cases that were recorded with --upload-certs."""

TOLD = {"extra-everything": "warning: scheduler.extraArgs: --config: there is no /etc/kubernetes/sched.yaml on this machine\n"}
"""What is said on stderr: this case mounts a file that the machine of the data did not have."""

DIRECTORIES = {"etc/kubernetes", "etc/kubernetes/manifests", "var/lib/kubelet"}


def empty_machine(layout):
    """The host of the data before `init`: whatever this machine has in kubeadm's directories is hidden."""
    host = OverlayHost(RealHost(layout=layout, environment={}), facts=FACTS)
    for root in roots(layout):
        host.remove(root)
    return host


@dataclass
class Run:
    case: str
    code: int
    text: str
    directory: Path

    def reference(self, name):
        return json.loads((REFERENCE / self.case / name).read_text())

    def file(self, name):
        return (self.directory / name).read_bytes()


@pytest.fixture(scope="module", params=CASES)
def run(request, tmp_path_factory):
    directory, out, err = tmp_path_factory.mktemp("init") / "dry", io.StringIO(), io.StringIO()
    argv = ["init", "--dry-run", "--config", str(REFERENCE / request.param / "kubeadm.yaml")]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv(dry_run_directory.VARIABLE, str(directory))
        patch.setattr(command, "machine", empty_machine)
        patch.setattr(command, "writer", lambda layout: RealHost(layout=layout))
        code = main([*argv, "--upload-certs"] if request.param in UPLOADED else argv)
    assert (code, err.getvalue()) == (0, TOLD.get(request.param, ""))
    return Run(request.param, code, out.getvalue(), directory)


def test_manifests_are_the_same_bytes(run):
    wanted = {path.name: path.read_bytes() for path in (REFERENCE / run.case / "manifests").iterdir()}
    assert len(wanted) == (3 if run.case == "external-etcd" else 4)
    assert {name: run.file(name) for name in wanted} == wanted


def test_the_files_of_the_kubelet_are_the_same_bytes(run):
    wanted = {path.name: path.read_bytes() for path in (REFERENCE / run.case / "kubelet").iterdir()}
    assert len(wanted) == 3
    assert {name: run.file(name) for name in wanted} == wanted


def flat(case, path):
    """Where a file of the machine lies in a dry run's directory."""
    pki = "etc/kubernetes/custom-pki" if case == "custom-paths-sans" else "etc/kubernetes/pki"
    inside = PurePosixPath(path)
    return str(inside.relative_to(pki)) if inside.is_relative_to(pki) else inside.name


def test_the_same_files_with_the_same_modes(run):
    rows = [line.split(" ", 2) for line in (REFERENCE / run.case / "files.txt").read_text().splitlines()]
    wanted = {flat(run.case, path): mode for kind, mode, path in rows if kind == "f"}
    found = {
        str(path.relative_to(run.directory)): f"{path.stat().st_mode & 0o777:o}" for path in run.directory.rglob("*") if path.is_file()
    }
    assert len(wanted) == (23 if run.case == "external-etcd" else 34)
    assert found == wanted
    directories = {path.name: path.stat().st_mode & 0o777 for path in (run.directory, *run.directory.rglob("*")) if path.is_dir()}
    assert directories == {"dry": 0o700} | ({} if run.case == "external-etcd" else {"etcd": 0o755})


def authorities(run):
    names = ["ca.crt", "front-proxy-ca.crt", "etcd/ca.crt"]
    return {name: certificates.first(run.file(name), source=name) for name in sorted(names) if (run.directory / name).exists()}


def summary_of_certificate(text, run):
    found = bundles.parse(text)[0]
    begin = certificates.first(run.file("ca.crt"), source="ca.crt").not_before
    return {
        "pem_blocks": [block.label for block in pem.blocks(text, source="text")],
        **summaries.of_certificate(found, authorities=authorities(run)),
        "not_before_minus_ca_crt_not_before_seconds": int((found.not_before - begin).total_seconds()),
    }


def summary_of_file(name, run):
    text, mode = run.file(name), f"{(run.directory / name).stat().st_mode & 0o777:04o}"
    if name.endswith(".crt"):
        fits = pairs.fits(certificates.first(text, source=name), keys.load(run.file(name.replace(".crt", ".key")), source=name))
        return {"mode": mode, **summary_of_certificate(text, run), "matching_key_file": fits}
    if name.endswith(".key"):
        return {"mode": mode, **summaries.of_key(text, source=name)}
    private = keys.load(run.file("sa.key"), source="sa.key")
    return {
        "mode": mode,
        "pem_type": pem.blocks(text, source=name)[0].label,
        "key": summaries.of_private_key(private),
        "matches_sa.key": keys.load_public(text, source=name) == [private.public_der()],
    }


def test_certificates_are_the_same_field_for_field(run):
    wanted = run.reference("certificates.json")
    assert len(wanted) == (12 if run.case == "external-etcd" else 22)
    assert {name: summary_of_file(name, run) for name in wanted} == wanted


def summary_of_kubeconfig(name, run):
    document = yaml.load(run.file(name))
    cluster = document["clusters"][0]["cluster"]
    same = base64.b64decode(cluster["certificate-authority-data"]) == run.file("ca.crt")
    cluster["certificate-authority-data"] = {"same_bytes_as": ["ca.crt"] if same else []}
    user = document["users"][0]["user"]
    certificate, key = (base64.b64decode(user[name]) for name in ("client-certificate-data", "client-key-data"))
    end = certificates.first(run.file("apiserver.crt"), source="apiserver.crt").not_after
    user["client-certificate-data"] = {
        **summary_of_certificate(certificate, run),
        "not_after_minus_apiserver_crt_not_after_seconds": int((bundles.parse(certificate)[0].not_after - end).total_seconds()),
    }
    user["client-key-data"] = {
        **summaries.of_key(key, source="text"),
        "matches_certificate": pairs.fits(bundles.parse(certificate)[0], keys.load(key, source="text")),
    }
    mode = (run.directory / name).stat().st_mode & 0o777
    return {"mode": f"{mode:04o}", "top_level_key_order": list(document), "content": document}


def test_kubeconfigs_are_the_same_field_for_field(run):
    wanted = run.reference("kubeconfigs.json")
    for content in wanted.values():  # the recording took two commands and the seconds between them; ours is one run
        certificate = content["content"]["users"][0]["user"]["client-certificate-data"]
        certificate["validity_seconds"] -= certificate["not_after_minus_apiserver_crt_not_after_seconds"]
        certificate["not_after_minus_apiserver_crt_not_after_seconds"] = 0
    assert len(wanted) == 5
    assert {name: summary_of_kubeconfig(name, run) for name in wanted} == wanted


REQUEST = re.compile(
    r'^\[dryrun\] Would perform action (\w+) on resource "(\w+)" in API group "([\w./]+)"\n'
    r'(?:\[dryrun\] Resource name "([^"]*)", namespace "([^"]*)"\n)?'
    r"(?:\[dryrun\] Attached object:\n((?:[^\[\n].*\n|\n)*))?",
    re.MULTILINE,
)


def told_requests(text):
    for verb, resource, api, name, namespace, body in REQUEST.findall(text):
        parsed = yaml.load(body)
        yield {"verb": verb, "resource": resource, "api": api, "name": name, "namespace": namespace, "object": parsed}


def written(run):
    """kubeadm's requests that change something. Its reads are left out: we read before every write, which changes nothing."""
    return [request for request in run.reference("init-dry-run-objects.json") if request["verb"] not in {"GET", "LIST"}]


def test_requests_are_told_in_the_same_order(run):
    ours = [(one["verb"], one["resource"], one["api"]) for one in told_requests(run.text)]
    wanted = [(one["verb"], one["resource"], one["api"]) for one in written(run)]
    assert len(wanted) == (29 if run.case == "external-etcd" else 33)
    # What makes administrators of admin.conf's group is told as well: a run writes it first, kubeadm's dry run keeps silent about it.
    assert ours == [("CREATE", "clusterrolebindings", "rbac.authorization.k8s.io/v1"), *wanted]


def test_the_objects_of_the_requests_are_the_same(run):
    told = list(told_requests(run.text))[1:]
    for ours, wanted in zip(told, written(run), strict=True):
        if ours["verb"] == "PATCH":
            assert ours["name"] == wanted["name"]
            assert set(ours["object"]["metadata"]["labels"]) > set(wanted["object"]["metadata"]["labels"])
        elif ours["object"]["kind"] == "Secret":
            assert secret_of(ours["object"]) == secret_of(wanted["object"])
        else:
            assert comparable(ours["object"], run) == comparable(wanted["object"], run)


def secret_of(body):
    """What is to be seen of a Secret: its values are masked, its name may be random."""
    data = body.get("data") or body.get("data_decoded")
    names = [owner["kind"] for owner in body["metadata"].get("ownerReferences", [])]
    return body.get("type"), sorted(data), names, body["metadata"]["namespace"]


def comparable(body, run):
    """Leave out what only a server fills in, and the signature that we add to cluster-info."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    body = {key: value for key, value in body.items() if key != "status"} | {"metadata": metadata}
    if metadata["name"] == "cluster-info":
        ca = base64.b64encode(run.file("ca.crt")).decode()
        body["data"] = {"kubeconfig": body["data"]["kubeconfig"].replace(ca, "<base64 CA>")}
    return body


def test_no_secret_is_told_but_the_token_that_people_ask_for(run):
    keys_told = [path.name for path in run.directory.rglob("*.key") if path.read_text().splitlines()[1] in run.text]
    assert keys_told == []
    assert "PRIVATE KEY" not in run.text
    secret = base64.b64encode(b"0123456789abcdef").decode()
    assert secret not in run.text


def test_printed_add_ons_are_the_same(run, monkeypatch, capsys):
    monkeypatch.setattr(command, "machine", empty_machine)
    for add_on, wanted in run.reference("addons-print-manifest.json").items():
        argv = ["init", "phase", "addon", add_on, "--print-manifest", "--config", str(REFERENCE / run.case / "kubeadm.yaml")]
        assert main(argv) == 0
        printed = [document.value for document in yaml.load_all(capsys.readouterr().out)]
        assert len(printed) == 6
        assert [without_empty(body) for body in printed] == [without_empty(body) for body in wanted]


def without_empty(value):
    """Go leaves out what is empty here and there; it means the same."""
    if isinstance(value, dict):
        return {key: found for key, part in value.items() if (found := without_empty(part)) not in ({}, [], "", None, False)}
    return [without_empty(part) for part in value] if isinstance(value, list) else value


def test_proxy_variables_do_not_reach_printed_manifests(monkeypatch, capsys):
    detected = replace(FACTS.detected, proxy_environment={"HTTPS_PROXY": "http://proxy.example.com:3128"})
    monkeypatch.setattr(command, "machine", lambda layout: OverlayHost(empty_machine(layout), facts=replace(FACTS, detected=detected)))
    path = REFERENCE / "ipv4-minimal" / "kubeadm.yaml"
    assert main(["init", "phase", "addon", "kube-proxy", "--print-manifest", "--config", str(path)]) == 0
    assert "proxy.example.com" not in capsys.readouterr().out
