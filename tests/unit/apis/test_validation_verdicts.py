"""kubeadm's own verdicts: every InitConfiguration and ClusterConfiguration of validation-cases.json."""

from __future__ import annotations

import pytest
from apis_documents import field_errors, load, reference_json

from kubewright.base.errors import ValidationError

_TABLE = reference_json("validation-cases.json")
_CASES = [case for case in _TABLE["cases"] if case["kind"] in _TABLE["base"]]


def _documents(case):
    return {**_TABLE["base"], case["kind"]: case["document"]}.values()


def test_the_table_has_the_known_number_of_cases():
    assert len(_CASES) == 103
    assert sum(case["exit_code"] == 0 for case in _CASES) > 30
    assert sum(isinstance(case.get("errors"), list) for case in _CASES) > 40


@pytest.mark.parametrize("case", [case for case in _CASES if case["exit_code"] == 0], ids=lambda case: case["case"])
def test_what_kubeadm_accepts_is_accepted_with_as_many_warnings(case):
    assert len(load(*_documents(case), validate_only=True).warnings) == case["warnings"]


@pytest.mark.parametrize("case", [case for case in _CASES if isinstance(case.get("errors"), list)], ids=lambda case: case["case"])
def test_field_errors_have_kubeadms_paths_and_types(case):
    expected = sorted((error["field"], error["type"]) for error in case["errors"])
    assert sorted(field_errors(*_documents(case), validate_only=True)) == expected


@pytest.mark.parametrize("case", [case for case in _CASES if case.get("errors") == "not a field error"], ids=lambda case: case["case"])
def test_what_kubeadm_cannot_even_load_is_one_field_error_of_ours(case):
    with pytest.raises(ValidationError) as caught:
        load(*_documents(case), validate_only=True)
    assert len(caught.value.errors) == 1
    assert caught.value.errors[0].path.text
    assert caught.value.errors[0].source == "kubeadm.yaml:1"
