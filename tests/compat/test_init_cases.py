"""`kubewright init --dry-run` compared with kubeadm v1.36.2: twelve configurations, with the facts of the data's host.

Three of them were recorded without a dry run: their phases run on a plan of the machine, and what they would write is
compared.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
from pathlib import Path, PurePosixPath

import pytest

import certificate_summaries as summaries
from kubewright.apis.machine import Detected, Layout
from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.events import RecordingReporter
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass, replace
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.cli.parsing.inputs import read_documents
from kubewright.host.decisions import roots
from kubewright.host.desired import File
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.lifecycle.init.operation import INIT, prepare
from kubewright.lifecycle.init.request import InitOptions
from kubewright.lifecycle.machine import TargetMachine
from kubewright.pki import certificates, keys
from kubewright.pki.encoding import pem
from operation_kit import Below, NoCluster, run_phases

REFERENCE = Path(__file__).parents[1] / "data" / "reference" / "cases"
DRY = (
    "ipv4-minimal",
    "extra-everything",
    "external-etcd",
    "dual-stack",
    "ipv6-only",
    "ecdsa-p256",
    "custom-paths-sans",
    "patches",
    "structured-authz",
)
WRITTEN = ("external-ca", "proxy-env", "rootless")
CASES = DRY + WRITTEN
PROXIES = {
    "HTTPS_PROXY": "http://proxy.example.com:3128",
    "HTTP_PROXY": "http://proxy.example.com:3128",
    "no_proxy": "10.0.0.0/8,.svc",
    "FOO_proxy": "x",
}
OTHERWISE = {"proxy-env": {"proxy_environment": PROXIES, "host_name": "elsewhere"}, "rootless": {"host_name": "elsewhere"}}
"""What was different about the host when a case was recorded: two were recorded on a host with another name than the node's."""

FIRST = {PurePosixPath("/etc/passwd"): ("uid", 103), PurePosixPath("/etc/group"): ("gid", 106)}
"""The first free numbers on the data's host."""

PHASES = ("certs", "kubeconfig", "etcd", "control-plane", "kubelet-start")
FACTS = Facts(
    detected=Detected(
        host_name="node1",
        default_ipv4="10.98.0.11",
        default_ipv6="fd00:98::11",
        cri_sockets=("unix:///var/run/containerd/containerd.sock",),
        ca_directories=("/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"),
    ),
    machine=MachineInfo(),
)
UPLOADED = frozenset(DRY) - {"external-etcd"}
"""Cases that were recorded with --upload-certs."""

TOLD = {"extra-everything": "warning: scheduler.extraArgs: --config: /etc/kubernetes/sched.yaml does not exist on this machine\n"}
"""Messages on stderr: this case mounts a file that the machine of the data did not have."""

DIRECTORIES = {"etc/kubernetes", "etc/kubernetes/manifests", "var/lib/kubelet"}


def empty_machine(layout):
    """The data's host before `init`: whatever this machine has in kubeadm's directories is hidden."""
    host = OverlayHost(RealHost(layout=layout, environment={}), facts=FACTS)
    for root in roots(layout):
        host.remove(root)
    return host


def host_of(case, layout):
    """The host of a case: with its patches, its variables, or the accounts of the data's host."""
    detected = replace(FACTS.detected, **OTHERWISE.get(case, {}))
    host = OverlayHost(empty_machine(layout), facts=Facts(detected=detected, machine=MachineInfo()))
    for path in sorted((REFERENCE / case / "patches").glob("*")) if case == "patches" else ():
        host.ensure(File(path=layout.kubernetes / "patches" / path.name, content=path.read_bytes(), mode=0o644, owner=0, group=0))
    if case == "rootless":
        login_defs = "\n".join(f"SYS_{kind.upper()}_MIN {first}" for kind, first in FIRST.values())
        for path, text in {**dict.fromkeys(FIRST, ""), layout.etc / "login.defs": login_defs}.items():
            host.ensure(File(path=path, content=text.encode(), mode=0o644, owner=0, group=0))
    return host


@dataclass()
class Run:
    """The result of a case: the exit code, the text, and every file by its name in a dry run's directory, with its mode."""

    case: str
    code: int
    text: str
    files: dict[str, tuple[int, bytes]]

    def reference(self, name):
        return json.loads((REFERENCE / self.case / name).read_text())

    def file(self, name):
        return self.files[name][1]

    def mode(self, name):
        return self.files[name][0]


@pytest.fixture(scope="module", params=CASES)
def run(request, tmp_path_factory):
    return (dry if request.param in DRY else written_over)(request.param, tmp_path_factory)


def dry(case, tmp_path_factory):
    directory, out, err = tmp_path_factory.mktemp("init") / "dry", io.StringIO(), io.StringIO()
    argv = ["init", "--dry-run", "--config", str(REFERENCE / case / "kubeadm.yaml")]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv(INIT.dry_run.variable, str(directory))
        patch.setattr(cli_machine, "host", lambda layout, *, files=None: Below(host_of(case, layout)))
        code = main([*argv, "--upload-certs"] if case in UPLOADED else argv)
    assert (code, [line for line in err.getvalue().splitlines() if not line.startswith("warning: ")]) == (0, [])
    paths = [path for path in directory.rglob("*") if path.is_file()]
    files = {str(path.relative_to(directory)): (path.stat().st_mode & 0o777, path.read_bytes()) for path in paths}
    directories = {path.name: path.stat().st_mode & 0o777 for path in (directory, *directory.rglob("*")) if path.is_dir()}
    assert directories == {"dry": 0o700} | ({} if case == "external-etcd" else {"etcd": 0o755})
    return Run(case, code, out.getvalue(), files)


def written_over(case, _):
    """Run the phases that write files on a plan of the machine; with an external CA twice, removing its keys in between."""
    host, reporter = host_of(case, Layout()), RecordingReporter()
    asked = InitOptions(documents=read_documents(str(REFERENCE / case / "kubeadm.yaml")), from_file=True, only=PHASES)
    whole = TargetMachine(at=lambda _: host, clock=SystemClock(), random=SystemRandom())
    prepared = prepare(asked, whole)
    for times in range(2 if case == "external-ca" else 1):
        if times:
            for name in ("ca.key", "front-proxy-ca.key"):
                host.remove(host.layout.pki / name)
        run_phases(prepared, asked, whole, kube=NoCluster(), reporter=reporter, host=host)
    files = {
        flat(case, str(file.path).lstrip("/")): (file.mode, file.content)
        for file in host.files
        if file.path.is_relative_to("/etc/kubernetes") or file.path.is_relative_to("/var")
    }
    return Run(case, 0, "", files)


def test_manifests_equal_those_of_kubeadm(run):
    wanted = {path.name: path.read_bytes() for path in (REFERENCE / run.case / "manifests").iterdir()}
    if run.case == "extra-everything":  # kubeadm's probes lack the secure-port of the case
        name, theirs = "kube-controller-manager.yaml", b"containerPort: 10257\n"
        assert wanted[name].count(theirs) == 1
        wanted[name] = wanted[name].replace(theirs, b"containerPort: 10357\n")
    assert len(wanted) == (3 if run.case == "external-etcd" else 4)
    assert {name: run.file(name) for name in wanted} == wanted


def test_files_of_the_kubelet_equal_those_of_kubeadm(run):
    wanted = {path.name: path.read_bytes() for path in (REFERENCE / run.case / "kubelet").iterdir()}
    assert len(wanted) == 3
    assert {name: run.file(name) for name in wanted} == wanted


def flat(case, path):
    """The path in a dry run's directory of a file of the machine."""
    pki = "etc/kubernetes/custom-pki" if case == "custom-paths-sans" else "etc/kubernetes/pki"
    inside = PurePosixPath(path)
    return str(inside.relative_to(pki)) if inside.is_relative_to(pki) else inside.name


def test_files_have_the_names_and_modes_of_those_of_kubeadm(run):
    rows = [line.split(" ", 2) for line in (REFERENCE / run.case / "files.txt").read_text().splitlines()]
    wanted = {flat(run.case, path): mode for kind, mode, path in rows if kind == "f" and "/patches/" not in path}
    assert len(wanted) == {"external-etcd": 23, "external-ca": 32}.get(run.case, 34)
    assert {name: f"{mode:o}" for name, (mode, _) in run.files.items()} == wanted


def authorities(run):
    names = ["ca.crt", "front-proxy-ca.crt", "etcd/ca.crt"]
    return {name: certificates.first(run.file(name), source=name) for name in sorted(names) if name in run.files}


def summary_of_certificate(text, run):
    found = certificates.parse(text)[0]
    begin = certificates.first(run.file("ca.crt"), source="ca.crt").not_before
    return {
        "pem_blocks": [block.label for block in pem.blocks(text, source="text")],
        **summaries.of_certificate(found, authorities=authorities(run)),
        "not_before_minus_ca_crt_not_before_seconds": int((found.not_before - begin).total_seconds()),
    }


def summary_of_file(name, run):
    text, mode = run.file(name), f"{run.mode(name):04o}"
    if name.endswith(".crt"):
        key = run.files.get(name.replace(".crt", ".key"))
        fits = certificates.fits(certificates.first(text, source=name), keys.load(key[1], source=name)) if key else "absent"
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


def test_certificates_have_the_same_fields_as_those_of_kubeadm(run):
    wanted = run.reference("certificates.json")
    assert len(wanted) == {"external-etcd": 12, "external-ca": 20}.get(run.case, 22)
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
        "not_after_minus_apiserver_crt_not_after_seconds": int((certificates.parse(certificate)[0].not_after - end).total_seconds()),
    }
    user["client-key-data"] = {
        **summaries.of_key(key, source="text"),
        "matches_certificate": certificates.fits(certificates.parse(certificate)[0], keys.load(key, source="text")),
    }
    return {"mode": f"{run.mode(name):04o}", "top_level_key_order": list(document), "content": document}


def test_kubeconfigs_have_the_same_fields_as_those_of_kubeadm(run):
    wanted = run.reference("kubeconfigs.json")
    for content in wanted.values():  # the recording used two commands, and the seconds between them; ours is one run
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
    """kubeadm's requests that change something. Reads are left out: we read before every write, which changes nothing."""
    return [request for request in run.reference("init-dry-run-objects.json") if request["verb"] not in {"GET", "LIST"}]


def test_requests_are_reported_in_the_order_of_kubeadm(run):
    if run.case in WRITTEN:
        return  # recorded without a dry run
    ours = [(one["verb"], one["resource"], one["api"]) for one in told_requests(run.text)]
    wanted = [(one["verb"], one["resource"], one["api"]) for one in written(run)]
    assert len(wanted) == (33 if run.case in UPLOADED else 29)
    # The binding that makes admin.conf's group administrators is reported as well: a run writes it first, kubeadm's
    # dry run does not mention it.
    assert ours == [("CREATE", "clusterrolebindings", "rbac.authorization.k8s.io/v1"), *wanted]


def test_objects_of_the_requests_equal_those_of_kubeadm(run):
    if run.case in WRITTEN:
        return  # recorded without a dry run
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
    """The visible part of a Secret: its values are masked, its name may be random."""
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


def test_no_secret_is_printed_except_the_requested_token(run):
    keys_told = [name for name, (_, text) in run.files.items() if name.endswith(".key") and text.decode().splitlines()[1] in run.text]
    assert keys_told == []
    assert "PRIVATE KEY" not in run.text
    secret = base64.b64encode(b"0123456789abcdef").decode()
    assert secret not in run.text


def test_printed_add_ons_equal_those_of_kubeadm(run, monkeypatch, capsys):
    monkeypatch.setattr(cli_machine, "host", lambda layout, **_: host_of(run.case, layout))
    for add_on, wanted in run.reference("addons-print-manifest.json").items():
        argv = ["init", "phase", "addon", add_on, "--print-manifest", "--config", str(REFERENCE / run.case / "kubeadm.yaml")]
        assert main(argv) == 0
        printed = [document.value for document in yaml.load_all(capsys.readouterr().out)]
        assert len(printed) == 6
        assert [without_empty(body) for body in printed] == [without_empty(body) for body in wanted]


def without_empty(value):
    """Go leaves out some empty values; the meaning is the same."""
    if isinstance(value, dict):
        return {key: found for key, part in value.items() if (found := without_empty(part)) not in ({}, [], "", None, False)}
    return [without_empty(part) for part in value] if isinstance(value, list) else value


def test_proxy_variables_do_not_reach_printed_manifests(monkeypatch, capsys):
    detected = replace(FACTS.detected, proxy_environment={"HTTPS_PROXY": "http://proxy.example.com:3128"})
    monkeypatch.setattr(
        cli_machine,
        "host",
        lambda layout, **_: OverlayHost(empty_machine(layout), facts=Facts(detected=detected, machine=MachineInfo())),
    )
    path = REFERENCE / "ipv4-minimal" / "kubeadm.yaml"
    assert main(["init", "phase", "addon", "kube-proxy", "--print-manifest", "--config", str(path)]) == 0
    assert "proxy.example.com" not in capsys.readouterr().out
