"""`controllers run` accepts kube-controller-manager's flags with its types and defaults, and refuses what it refuses; `csr explain` of files."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path, PurePosixPath

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))

from controllers_kit import csr, request

from kubewright.base import yaml
from kubewright.base.errors import UsageError
from kubewright.cli.handlers.controllers import run as controllers
from kubewright.cli.main import main
from kubewright.cli.parsing import parser
from kubewright.cli.rows.controllers import RUN_FLAGS
from kubewright.manifests.extra_arguments import flags_of

KINDS = {
    "string": {"string"},
    "bool": {"", "bool"},
    "int": {"int"},
    "int32": {"int32"},
    "strings": {"strings"},
    "duration": {"duration"},
}
SAID = {"kube-api-qps": "float32", "bind-address": "ip"}
"""Flags that are text here and have a special type there."""


def parsed(*argv: str) -> parser.Parsed:
    return parser.parse(["controllers", "run", "--kubeconfig", "/k", *argv], program="kubewright")


def chosen(*argv: str):
    return controllers.options_of(parsed(*argv))


def test_every_flag_is_one_of_kube_controller_manager():
    known = flags_of("kube-controller-manager", "1.36")
    assert known is not None
    ours = ["config", "node-policy", "journal"]
    assert [flag.name for flag in RUN_FLAGS if flag.name not in known.flags] == ours
    theirs = [flag for flag in RUN_FLAGS if flag.name not in ours]
    found = {flag.name: known.flags[flag.name].type for flag in theirs}
    assert {flag.name for flag in theirs if found[flag.name] not in {*KINDS[flag.kind], SAID.get(flag.name, "")}} == set()
    assert len(theirs) == 28


def test_the_defaults():
    found = chosen()
    assert len(found.controllers) == 3
    assert (found.files, found.longest, found.qps, found.burst) == ({}, timedelta(hours=8760), 20.0, 30)
    assert found.election is not None
    assert (found.election.name, found.election.namespace) == ("kubewright-controllers", "kube-system")
    assert (found.election.lease, found.election.renew, found.election.retry) == (15, 10, 2)


def test_one_ca_serves_all_signers_or_each_has_its_own():
    pair = (PurePosixPath("/ca.crt"), PurePosixPath("/ca.key"))
    shared = chosen("--cluster-signing-cert-file=/ca.crt", "--cluster-signing-key-file=/ca.key")
    assert dict(shared.files) == dict.fromkeys(("kubelet-client", "kubelet-serving", "kube-apiserver-client", "legacy-unknown"), pair)
    own = chosen("--cluster-signing-kubelet-client-cert-file=/ca.crt", "--cluster-signing-kubelet-client-key-file=/ca.key")
    assert dict(own.files) == {"kubelet-client": pair}


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["--cluster-signing-cert-file=/ca.crt"], "go together"),
        (["--cluster-signing-kubelet-client-key-file=/ca.key"], "--cluster-signing-kubelet-client-cert-file"),
        (
            ["--cluster-signing-cert-file=/a", "--cluster-signing-key-file=/b", "--cluster-signing-legacy-unknown-key-file=/c"],
            "cannot be combined",
        ),
        (["--controllers=*,nodeipam"], 'there is no controller "nodeipam" here'),
        (["--controllers=servingapproving"], "servingapproving needs a policy"),
        (["--leader-elect-renew-deadline=15s"], "longer"),
        (["--leader-elect-retry-period=10s"], "longer"),
        (["--leader-elect-retry-period=9s"], "1.2 times"),
        (
            [f"--leader-elect-{name}" for name in ("lease-duration=900ms", "renew-deadline=500ms", "retry-period=100ms")],
            "at least a second",
        ),
        (["--cluster-signing-duration=0s"], "longer than zero"),
        (["--kube-api-qps=many"], "a number above zero"),
        (["--kube-api-qps=0"], "a number above zero"),
        (["--kubeconfig="], "no cluster"),
        (["--leader-elect-resource-lock=endpoints"], "leases"),
    ],
)
def test_invalid_flags_are_refused(argv, what):
    with pytest.raises(UsageError) as error:
        chosen(*argv)
    assert what in f"{error.value} {error.value.remedy}"


def test_all_errors_are_reported_at_once():
    with pytest.raises(UsageError) as error:
        chosen(
            "--controllers=nodeipam",
            "--cluster-signing-cert-file=/ca.crt",
            "--kube-api-qps=0",
            "--kubeconfig=",
            "--leader-elect-renew-deadline=15s",
        )
    told = error.value.detail.splitlines()
    assert error.value.what == "5 values are not valid"
    assert len(told) == 5
    assert [row.endswith("name both") for row in told] == [False, False, True, False, False]
    for row, what in zip(told, ("no cluster", '"nodeipam"', "go together", "longer", "above zero"), strict=True):
        assert what in row


@pytest.mark.parametrize(
    "flag", ["cluster-cidr", "root-ca-file", "service-account-private-key-file", "allocate-node-cidrs", "feature-gates"]
)
def test_other_flags_of_kube_controller_manager_are_explained(flag):
    with pytest.raises(UsageError) as error:
        parsed(f"--{flag}=x")
    assert "only kube-controller-manager has" in error.value.remedy


def test_other_flags_are_unknown():
    with pytest.raises(UsageError) as error:
        parsed("--no-such-flag=x")
    assert "kube-controller-manager" not in error.value.remedy


def test_without_leader_election():
    assert chosen("--leader-elect=false").election is None


def explained(capsys, *argv: str) -> dict:
    assert main(["csr", "explain", *argv, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def outcomes(found: dict) -> dict[str, str]:
    return {one["controller"]: one["outcome"] for one in found["decisions"]}


def test_a_file_of_pem_is_explained(tmp_path, capsys):
    path = tmp_path / "node.csr"
    path.write_bytes(request(names=[("dns", "a.example"), (0xA0, b"")]))
    found = explained(capsys, str(path), "--signer", "kubernetes.io/kubelet-serving", "--usages", "digital signature,server auth")
    assert outcomes(found) == {"csrapproving": "nothing", "csrsigning-kubelet-serving": "nothing", "csrcleaner": "nothing"}
    assert (found["request"]["dnsNames"], found["request"]["otherNames"]) == (["a.example"], ["other name"])
    assert found["request"]["signatureValid"] is True


def test_a_broken_rule_is_reported_before_the_approval(tmp_path, capsys):
    path = tmp_path / "node.csr"
    path.write_bytes(request(names=[("dns", "a")]))
    found = {one["controller"]: one["reason"] for one in explained(capsys, str(path))["decisions"]}
    assert "DNS subjectAltNames are not allowed" in found["csrsigning-kubelet-client"]


def test_a_document_is_explained(tmp_path, capsys):
    path = tmp_path / "csr.yaml"
    path.write_text(yaml.dump(csr(conditions=[{"type": "Approved", "status": "True"}])))
    found = explained(capsys, str(path))
    assert outcomes(found)["csrsigning-kubelet-client"] == "sign"
    assert (found["requester"], found["state"]) == ("system:bootstrap:abcdef", "Approved")


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": 5, "spec": [], "status": "x"},
        {"spec": {"request": 5, "groups": 5, "usages": {"a": 1}, "extra": [1], "expirationSeconds": 10**30}},
        {"spec": {"groups": [5, None], "usages": [["a"]], "extra": {"a": 5}}, "status": {"conditions": 5, "certificate": 5}},
        {"status": {"conditions": [5, {"type": ["Approved"], "lastUpdateTime": 5}]}},
    ],
)
def test_malformed_fields_of_a_document_count_as_missing(tmp_path, capsys, fields):
    path = tmp_path / "csr.yaml"
    path.write_text(yaml.dump({"kind": "CertificateSigningRequest", **fields}))
    assert explained(capsys, str(path))["state"] in {"Pending", ""}


def test_invalid_requests_are_refused(tmp_path, capsys):
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\n")
    assert main(["csr", "explain", str(path)]) == 3
    assert "contains no certificate request" in capsys.readouterr().err
