"""kubeadm's own verdicts: every document of validation-cases.json, of every kind, and the defects of kubeadm that are fixed."""

from __future__ import annotations

import pytest
from apis_documents import MACHINE, cluster, documents, field_errors, init, load, reference_json

from kubewright.apis.kubeadm.loading import load_init, load_join, load_reset
from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.apis.kubeadm.whole_files import WholeFile, load_whole
from kubewright.apis.machine import Detected
from kubewright.base.errors import ValidationError

_TABLE = reference_json("validation-cases.json")

REPAIRED = {
    ("InitConfiguration", "token expires only"): [],
    ("InitConfiguration", "cri socket tcp"): [("nodeRegistration.criSocket", "Invalid value")],
    ("ClusterConfiguration", "negative validity"): [("certificateValidityPeriod", "Invalid value")],
    ("ResetConfiguration", "criSocket tcp"): [("criSocket", "Invalid value")],
}
"""Cases that kubeadm v1.36 judges wrongly, and our verdict. Each has a row in docs/compat/config.md."""


WARNED = {("ClusterConfiguration", "featureGate NodeLocalCRISocket false"): 1}
"""Cases that kubeadm accepts silently, and how many warnings we give. Each has a row in docs/compat/config.md."""


def _name(case):
    return (case["kind"], case["case"])


_CASES = [case for case in _TABLE["cases"] if _name(case) not in REPAIRED]
_VALID = [case for case in _CASES if case["exit_code"] == 0]
_INVALID = [case for case in _CASES if isinstance(case.get("errors"), list)]
_UNREADABLE = [case for case in _CASES if case.get("errors") == "not a field error"]


def _load(case) -> WholeFile:
    base = _TABLE["base"] if case["kind"] in _TABLE["base"] else {}
    values = {**base, case["kind"]: case["document"]}.values()
    return load_whole(documents(*values), detected=MACHINE, exists=lambda _: case["case"] != "file missing")


def _errors(case):
    with pytest.raises(ValidationError) as caught:
        _load(case)
    return caught.value.errors


def test_the_table_has_the_known_number_of_cases():
    assert len(_TABLE["cases"]) == 131
    assert [len(part) for part in (_VALID, _INVALID, _UNREADABLE)] == [48, 65, 14]
    assert all(any(_name(case) == name for case in _TABLE["cases"]) for name in (*REPAIRED, *WARNED))


@pytest.mark.parametrize("case", _VALID, ids=lambda case: "/".join(_name(case)))
def test_documents_that_kubeadm_accepts_are_accepted_with_as_many_warnings(case):
    assert len(_load(case).warnings) == WARNED.get(_name(case), case["warnings"])


@pytest.mark.parametrize("case", _INVALID, ids=lambda case: "/".join(_name(case)))
def test_field_errors_have_the_paths_and_types_of_kubeadm(case):
    expected = sorted((error["field"], error["type"]) for error in case["errors"])
    assert sorted((error.path.text, error.type.value) for error in _errors(case)) == expected


@pytest.mark.parametrize("case", _UNREADABLE, ids=lambda case: "/".join(_name(case)))
def test_documents_that_kubeadm_cannot_load_give_one_field_error(case):
    errors = _errors(case)
    assert len(errors) == 1
    assert errors[0].path.text
    assert errors[0].source == "kubeadm.yaml:1"


@pytest.mark.parametrize("name", REPAIRED, ids="/".join)
def test_verdicts_that_are_defects_of_kubeadm_are_repaired(name):
    [case] = [case for case in _TABLE["cases"] if _name(case) == name]
    assert (case["exit_code"] == 0) is bool(REPAIRED[name])  # where we refuse, kubeadm accepts, and the other way round
    found = [] if not REPAIRED[name] and _load(case) else [(error.path.text, error.type.value) for error in _errors(case)]
    assert found == REPAIRED[name]


def test_a_token_of_the_command_line_is_judged_too():
    with pytest.raises(ValidationError) as found:
        load_init([], overrides=InitOverrides(token="x.y"), detected=MACHINE)
    assert [(str(error.path), error.value) for error in found.value.errors] == [("bootstrapTokens.0.token", "(hidden)")]


BY_TOKEN = {"apiServerEndpoint": "a.example:6443", "token": "abcdef.0123456789abcdef", "unsafeSkipCAVerification": True}
JOINS = {
    "controlPlane.localAPIEndpoint.bindPort": {"controlPlane": {"localAPIEndpoint": {"bindPort": 65536}}},
    "discovery.bootstrapToken.caCertHashes": {"discovery": {"bootstrapToken": {**BY_TOKEN, "caCertHashes": ["sha256:00"]}}},
    "nodeRegistration.ignorePreflightErrors": {"nodeRegistration": {"ignorePreflightErrors": ["all", "Swap"]}},
}


@pytest.mark.parametrize("path", JOINS)
def test_join_is_checked_for_errors_of_a_real_run(path):
    join = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration", "discovery": {"bootstrapToken": BY_TOKEN}, **JOINS[path]}
    with pytest.raises(ValidationError) as found:
        load_join(documents(join), detected=MACHINE)
    assert [str(error.path) for error in found.value.errors] == [path]


def test_a_control_plane_without_an_address_cannot_join():
    join = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": BY_TOKEN},
        "controlPlane": {},
    }
    with pytest.raises(ValidationError) as found:
        load_join(documents(join), detected=Detected(host_name="node1"))
    assert [str(error.path) for error in found.value.errors] == ["controlPlane.localAPIEndpoint.advertiseAddress"]


def test_reset_is_checked_for_errors_of_a_real_run():
    reset = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ResetConfiguration", "ignorePreflightErrors": ["all", "Swap"]}
    with pytest.raises(ValidationError) as found:
        load_reset(documents(reset), detected=MACHINE)
    assert [str(error.path) for error in found.value.errors] == ["ignorePreflightErrors"]


def test_long_lifetimes_of_cas_give_a_warning():
    loaded = load(cluster(caCertificateValidityPeriod="87601h"))
    assert [warning for warning in loaded.warnings if "caCertificateValidityPeriod" in warning] == loaded.warnings
    assert len(loaded.warnings) == 1


def test_negative_lifetimes_of_cas_are_refused():
    assert ("caCertificateValidityPeriod", "Invalid value") in field_errors(cluster(caCertificateValidityPeriod="-1h"))


def test_site_local_pod_subnets_give_a_warning():
    networking = {"podSubnet": "fec0::/56", "serviceSubnet": "fd00:96::/112"}
    loaded = load(cluster(networking=networking), init(localAPIEndpoint={"advertiseAddress": "fd00::11"}))
    assert [warning for warning in loaded.warnings if "networking.podSubnet" in warning] == loaded.warnings
    assert len(loaded.warnings) == 1
