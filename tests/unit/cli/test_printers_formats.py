"""The value of -o: the formats, templates in files, KYAML and Go's JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parts
from kubewright.base import yaml
from kubewright.base.errors import UsageError
from kubewright.cli.printers import choosing, documents
from kubewright.cli.rows import model

OBJECT = {"kind": "Images", "apiVersion": "output.kubeadm.k8s.io/v1alpha3", "images": ["a", "b"]}


def printed(form: str, *objects: dict[str, object]) -> str:
    printer = choosing.choose(form)
    assert printer is not None
    return printer(objects or (OBJECT,))


def test_text_output_is_left_to_the_command():
    assert choosing.choose("text") is None


def test_the_flag_lists_the_formats():
    assert sorted(model.PRINTED_FORMATS) == sorted(choosing.allowed({}))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            "json",
            '{\n    "kind": "Images",\n    "apiVersion": "output.kubeadm.k8s.io/v1alpha3",\n    "images": [\n        "a",\n        "b"\n    ]\n}\n',
        ),
        ("yaml", "apiVersion: output.kubeadm.k8s.io/v1alpha3\nimages:\n- a\n- b\nkind: Images\n"),
        ("kyaml", '---\n{\n  kind: "Images",\n  apiVersion: "output.kubeadm.k8s.io/v1alpha3",\n  images: [\n    "a",\n    "b",\n  ],\n}\n'),
        ("JSON", printed("json")),
        ("go-template={{.kind}}", "Images"),
        ("template={{.kind}}", "Images"),
        ("jsonpath={.images[*]}", "a b"),
        ("jsonpath-as-json={.images[0]}", '[\n    "a"\n]\n'),
    ],
)
def test_each_format_prints_the_object(form, text):
    assert printed(form) == text


@pytest.mark.parametrize(
    ("form", "text"), [("yaml", "a: 1\n---\na: 2\n"), ("json", '{\n    "a": 1\n}\n{\n    "a": 2\n}\n'), ("jsonpath={.a}", "12")]
)
def test_several_objects_follow_each_other(form, text):
    assert printed(form, {"a": 1}, {"a": 2}) == text


@pytest.mark.parametrize("form", ["go-template-file", "templatefile", "jsonpath-file"])
def test_templates_come_from_files(form, tmp_path):
    path = tmp_path / "template"
    path.write_text("{{.kind}}" if form != "jsonpath-file" else "{.kind}")
    assert printed(f"{form}={path}") == "Images"
    with pytest.raises(UsageError, match="cannot be read"):
        choosing.choose(f"{form}={tmp_path}")


@pytest.mark.parametrize("form", ["xml", "", "TEXT", "json=1", "jsonpath2={.a}"])
def test_an_unknown_format_lists_the_allowed_ones(form):
    with pytest.raises(UsageError) as caught:
        choosing.choose(form)
    assert caught.value.what.endswith(
        "allowed formats are: go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,template,templatefile,text,yaml"
    )


def test_kyaml_can_be_disabled_with_the_variable_of_kubectl(monkeypatch):
    monkeypatch.setenv("KUBECTL_KYAML", "False")
    with pytest.raises(UsageError) as caught:
        choosing.choose("kyaml")
    assert "kyaml," not in caught.value.what


@pytest.mark.parametrize(
    "form", ["jsonpath={.a", "go-template={{", "jsonpath={end}", "go-template={{.kind.x}}", "jsonpath=", "template=\udc80"]
)
def test_an_invalid_template_is_a_usage_error(form):
    with pytest.raises(UsageError):
        printed(form)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=parts.given(200), deadline=None)
@given(JSON)
def test_json_is_read_back_unchanged(value):
    assert json.loads(documents.json_text(value)) == value
    assert json.loads(documents.json_text(value, indent=4, sort_keys=True)) == value


PLAIN = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zl", "Zp", "Co", "Cn"), include_characters="\n\t"), max_size=8
)


@settings(max_examples=parts.given(200), deadline=None)
@given(st.dictionaries(PLAIN, PLAIN | st.booleans() | st.integers(-99, 99) | st.none() | st.lists(PLAIN, max_size=3), max_size=3))
def test_kyaml_is_yaml(value):
    assert yaml.load(documents.kyaml_text(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"a b": 1, "no": 2, "1": 3, "a-b.c/d": 4, "t": 5, "ü": 6},
            '{\n  "a b": 1,\n  "no": 2,\n  "1": 3,\n  a-b.c/d: 4,\n  "t": 5,\n  ü: 6,\n}',
        ),
        ({"a": {}, "b": [], "c": [{"d": 1}, {"e": None}]}, "{\n  a: {},\n  b: [],\n  c: [{\n    d: 1,\n  }, {\n    e: null,\n  }],\n}"),
        ({"a": "one\n  two\n"}, '{\n  a: "\\\n     one\\n\\\n    \\  two\\n\\\n    ",\n}'),
        ({"a": 'q"\\\x01\u2028'}, '{\n  a: "q\\"\\\\\\x01\\L",\n}'),
    ],
)
def test_kyaml_is_written_as_upstream(value, text):
    assert documents.kyaml_text(value) == f"---\n{text}\n"
