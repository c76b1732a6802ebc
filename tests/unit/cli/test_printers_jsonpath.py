"""Kubernetes' JSONPath: what it prints and refuses, and that it raises only a Problem."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import parts
from kubewright.cli.printers.go_values import Problem
from kubewright.cli.printers.jsonpath import evaluating, parsing
from kubewright.cli.printers.jsonpath.parsing import Expression, Field, Slice, Text, Union

OBJECT = {
    "kind": "List",
    "items": [
        {"name": "a", "size": 3, "tags": ["x", "y", "z"], "on": True},
        {"name": "b", "size": 12, "tags": ["x", "y"], "none": None},
        {"name": "c.d", "size": 31535999, "tags": []},
    ],
    "map": {"b": {"c": 1}, "a": 1.5, "with.dot": "<&>"},
}


def printed(template: str, **options: bool) -> str:
    return evaluating.render(parsing.parse(template), OBJECT, **options)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.kind}", "List"),
        ("kind: {.kind}!", "kind: List!"),
        ("{.items[0].name}", "a"),
        ("{.items[-1].name}", "c.d"),
        ("{.items[*].name}", "a b c.d"),
        ("{.items[0:2].name}", "a b"),
        ("{.items[::2].name}", "a c.d"),
        ("{.items[0,2].name}", "a c.d"),
        ("{.items[*]['name','size']}", "a b c.d 3 12 3.1535999e+07"),
        ('{range .items[*]}{.name}={.size}{"\\n"}{end}', "a=3\nb=12\nc.d=3.1535999e+07\n"),
        ("{range .items[0:2]}{.name}:{range .tags[*]}{@},{end};{end}", "a:x,y,z,;b:x,y,;"),
        ("{range .nothing[*]}{.name}{end}after", "after"),
        ("{.items[?(@.size>4.0)].name}", "b c.d"),
        ("{.items[?(@.name=='c.d')].size}", "3.1535999e+07"),
        ("{.items[?(@.on)].name}", "a"),
        ("{.items[?(@.on==true)].name}", "a"),
        ("{.items[?(@.none)].name}", "b"),
        ("{..name}", "a b c.d"),
        ("{.map.with\\.dot}", "<&>"),
        ("{.map['with\\.dot']}", "<&>"),
        ("{.map}", '{"a":1.5,"b":{"c":1},"with.dot":"\\u003c\\u0026\\u003e"}'),
        ("{.map.*}", '1.5 {"c":1} <&>'),
        ("{.items[1].none}", "null"),
        ("{.missing.deep}|", "|"),
        ("{'it\\'s'}{\"\\u00e9\"}", "it'sé"),
        ("{1}{1.5}{-2}{true}", "11.5-2true"),
        ("", ""),
    ],
)
def test_a_template_prints_the_expected_text(template, text):
    assert printed(template) == text


def test_as_json_each_expression_becomes_a_list():
    assert printed("{.items[0:2].name}{.missing}", as_json=True) == '[\n    "a",\n    "b"\n]\n[]\n'


def test_a_negative_index_counts_from_the_end_of_the_first_list():
    with pytest.raises(Problem, match="index 2, length 2"):
        printed("{.items[0:2].tags[-1]}")


def test_a_filter_on_a_missing_element_matches():
    assert printed("{.items[?(@.tags[9])].name}") == "a b c.d"


@pytest.mark.parametrize("template", ["{.missing}", "{.items[*].missing}", "{range .missing[*]}{end}"])
def test_missing_keys_are_reported_if_they_are_not_allowed(template):
    assert printed(template) == ""
    with pytest.raises(Problem, match="missing is not found"):
        printed(template, allow_missing=False)


def test_a_key_that_only_some_elements_have_is_not_missing():
    assert printed("{.items[*].on}", allow_missing=False) == "true"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{.a", "unclosed action"),
        ("{.a[", "unterminated array"),
        ("{.a[x]}", "invalid array index x"),
        ("{.a[?(@.b}", "unterminated filter"),
        ("{.a[?(@.b)}", "unclosed array"),
        ("{'a}", "unterminated quoted string"),
        ("{'\\q'}", "invalid syntax"),
        ("{....}", "multiple recursive descent"),
        ("{^}", r"U\+005E '\^'"),
        ("{1.2.3}", "cannot parse number"),
        (f"{{{'9' * 5000}}}", "cannot parse number"),
        (f"{{.a[{'9' * 5000}]}}", "is not a number"),
        ("{" + "[?(" * 60 + ")]" * 60 + "}", "nested too deeply|unclosed|unterminated|invalid"),
    ],
)
def test_unreadable_templates_are_refused(template, message):
    with pytest.raises(Problem, match=message):
        parsing.parse(template)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{.items[7]}", "index 7, length 3"),
        ("{.items[2:1]}", "starting index 2"),
        ("{.items[0:2:0]}", "step must be"),
        ("{.kind[0]}", "string is not array"),
        ("{.map[?(@.a)]}", "cannot be filtered"),
        ("{.items[?(@.size>4)]}", "incompatible types"),
        ("{.items[?(@.on<true)]}", "invalid type"),
        ("{.items[?(@.tags[*]=='x')]}", "one element at a time"),
        ("{.items[?(@.name===1)]}", "unrecognized filter operator ==="),
        ("{sort .items}", "unrecognized identifier sort"),
        ("{end}", "nothing to end"),
    ],
)
def test_expressions_that_do_not_fit_the_object_are_reported(template, message):
    with pytest.raises(Problem, match=message):
        printed(template)


def test_a_template_is_texts_and_expressions():
    found = parsing.parse("a{.b[1:2,'c']}")
    union = Union((Expression((Slice(1, 2, None),)), Expression((Field("c"),))))
    assert found == (Text("a"), Expression((Field("b"), union)))


PIECES = st.sampled_from(
    [
        *"{}[]()?@$.*,:'\"\\<>=!-+1 \n",
        "{.items",
        "[?(@.",
        "==",
        "..",
        "range ",
        "end",
        "true",
        "name",
        "[*]",
        "[0]",
        "{range .items[*]}",
        "{end}",
        "é",
        "\udc80",
    ]
)


@settings(max_examples=parts.given(200), deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join), st.booleans())
@example("{[" + "[?(" * 40, True)
@example("{" + ".." * 3 + "}", False)
def test_every_text_is_printed_or_raises_a_problem(template, as_json):
    try:
        text = printed(template, as_json=as_json, allow_missing=not as_json)
    except Problem as problem:
        assert str(problem)
    else:
        assert isinstance(text, str)
