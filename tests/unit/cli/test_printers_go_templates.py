"""Go's text/template: what it prints and refuses, and that it raises only a Problem."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import parts
from kubewright.cli.printers import gofmt
from kubewright.cli.printers.go_values import Int, Problem
from kubewright.cli.printers.gotemplate import executing, parsing
from kubewright.cli.printers.gotemplate.functions import COUNTS, FUNCTIONS

OBJECT = {
    "kind": "Thing",
    "items": ["a", "b", "c"],
    "rows": [{"name": "x", "size": 2}, {"name": "y", "size": 1.5, "none": None}],
    "count": 31535999,
    "map": {"b": 1, "a": [True, None]},
    "nothing": None,
}


def printed(template: str, *, allow_missing: bool = True) -> str:
    return executing.render(parsing.parse(template, functions=FUNCTIONS), OBJECT, allow_missing=allow_missing)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain }} text", "plain }} text"),
        ("{{.kind}}-{{.count}}", "Thing-31535999"),
        ("{{.map}}", "map[a:[true <nil>] b:1]"),
        ("{{.missing}} {{.nothing}} {{.missing.deep}}", "<no value> <no value> <no value>"),
        ("{{range .items}}{{.}},{{end}}", "a,b,c,"),
        ("{{range $i, $x := .items}}{{$i}}{{$x}}{{end}}", "0a1b2c"),
        ("{{range $x := .items}}{{$x}}{{else}}none{{end}}", "abc"),
        ("{{range .missing}}x{{else}}none{{end}}", "none"),
        ("{{range $k, $v := .map}}{{$k}}={{$v}};{{end}}", "a=[true <nil>];b=1;"),
        ("{{range 3}}{{.}}{{end}}", "012"),
        ('{{range .items}}{{if eq . "b"}}{{continue}}{{end}}{{.}}{{end}}', "ac"),
        ('{{range .items}}{{if eq . "b"}}{{break}}{{end}}{{.}}{{end}}.', "a."),
        ("{{range .rows}}{{.name}}{{with .none}}!{{end}}{{.size}} {{end}}", "x2 y1.5 "),
        ("{{if .missing}}a{{else if .kind}}b{{else}}c{{end}}", "b"),
        ("{{with .missing}}a{{else with .kind}}{{.}}{{end}}", "Thing"),
        ("{{$x := 1}}{{if true}}{{$x = 5}}{{$x := 7}}{{$x}}{{end}}{{$x}}", "75"),
        ("a {{- .kind -}} \n b", "aThingb"),
        ("a {{- /* note */ -}} b", "ab"),
        ('{{.kind | printf "%s-%s" "a" | len}}', "7"),
        ('{{(index .rows 0).name}}{{index .map "b"}}{{index .map "none"}}', "x1<no value>"),
        ("{{slice .kind 1 3}}{{slice .items 1}}{{len .items}}", "hi[b c]3"),
        ("{{and .kind .missing}}|{{or .missing .kind}}|{{not .kind}}", "<no value>|Thing|false"),
        ('{{eq 1 2 1}}{{ne 1 2}}{{lt 1 2}}{{le 2 2}}{{gt 2.5 1.0}}{{ge "b" "a"}}', "truetruetruetruetruetrue"),
        ('{{define "t"}}<{{.}}{{$}}>{{end}}{{template "t" .kind}}{{template "t"}}', "<ThingThing><<no value><no value>>"),
        ('{{block "b" .kind}}[{{.}}]{{end}}', "[Thing]"),
        ('{{html "<a>"}} {{urlquery "a b/c"}} {{js "a\'b"}}', "&lt;a&gt; a+b%2Fc a\\'b"),
        ('{{exists . "map" "b"}}{{exists . "map" "z"}}{{base64decode "aGk="}}', "truefalsehi"),
        ("{{`raw\\n`}}{{'a'}}{{0x1F}}{{0b11}}{{017}}{{1_000}}{{1e3}}", "raw\\n97313151000" + "1000"),
        ('{{print 1 2 "x" 3}}{{println 1 "x"}}', "1 2x31 x\n"),
        ("{{eq nil .}} {{eq .missing nil}} {{html .missing 0}}", "false true &lt;no value&gt;0"),
        ("{{range $x := .missing}}{{else}}{{$x}}{{end}}", "<no value>"),
        ('{{exists nil}}{{exists .missing}}{{exists .missing "x"}}{{exists . "nothing"}}', "truetruefalsefalse"),
        ('{{define "t"}} {{end}}{{define "t"}}a{{end}}{{define "t"}}\n{{end}}{{template "t"}}', "a"),
        ("", ""),
    ],
)
def test_a_template_prints_the_expected_text(template, text):
    assert printed(template) == text


def test_missing_keys_are_reported_if_they_are_not_allowed():
    for template in ("{{.missing}}", "{{range .missing}}{{end}}", "{{.map.z}}"):
        printed(template)
        with pytest.raises(Problem, match="map has no entry for key"):
            printed(template, allow_missing=False)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("\n\n{{.a", "output:3: unclosed action"),
        ("{{nope}}", 'function "nope" not defined'),
        ("{{$x}}", "undefined variable"),
        ("{{if .a}}", "unexpected EOF"),
        ("{{end}}", "unexpected {{end}}"),
        ("{{if .a}}{{else}}{{else}}{{end}}", "expected end"),
        ("{{break}}", "outside"),
        ('{{define "t"}}a{{end}}{{define "t"}}b{{end}}', "multiple definition"),
        ('{{define "output"}}a{{end}}b', "multiple definition"),
        ('{{if true}}{{define "x"}}{{end}}{{end}}', "unexpected {{define}}"),
        ("{{range $a, $b, $c := .x}}{{end}}", "declarations"),
        ("{{1.a}}", "bad number syntax"),
        ("{{.kind.}}", "operand"),
        ("{{true.a}}", "unexpected . after term"),
        ("{{(.a}}", "unclosed left paren"),
        ("{{" + "(" * 80 + "}}", "nested too deeply|unclosed"),
        ("{{if 1}}" * 80, "nested too deeply"),
    ],
)
def test_unreadable_templates_are_refused(template, message):
    with pytest.raises(Problem, match=message):
        parsing.parse(template, functions=FUNCTIONS)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{.kind.x}}", "can't evaluate field x"),
        ("{{range .rows}}{{.none.x}}{{end}}", "nil pointer evaluating"),
        ("{{.kind 1}}", "not a method but has arguments"),
        ("{{1 2}}", "non-function 1"),
        ('{{template "none"}}', 'template "none" not defined'),
        ('{{define "t"}}{{template "t"}}{{end}}{{template "t"}}', "maximum template depth"),
        ("{{len 3}}", "error calling len: len of type int"),
        ("{{index .items 3}}", "index out of range: 3"),
        ("{{eq 1 1.0}}", "incompatible types for comparison: int and float64"),
        ("{{range $x := index .items $x}}{{end}}", "undefined variable"),
        ("{{range true}}{{end}}", "can't iterate over true"),
    ],
)
def test_expressions_that_do_not_fit_the_object_are_reported(template, message):
    with pytest.raises(Problem, match=message):
        printed(template)


@pytest.mark.parametrize(
    ("format", "arguments", "text"),
    [
        ("%d|%5d|%-5d|%05d|%+d|%x|%#X|%b|%o|%c|%U", [Int(42)] * 11, "42|   42|42   |00042|+42|2a|0X2A|101010|52|*|U+002A"),
        ("%s|%q|%5s|%-5s|%.2s|%x", ["abc", 'a"b', "ab", "ab", "abc", "ab"], 'abc|"a\\"b"|   ab|ab   |ab|6162'),
        ("%v|%f|%.1f|%e|%g|%8.2f", [1e7, 1.5, 1.25, 12345.678, 0.00001, -1.5], "1e+07|1.500000|1.2|1.234568e+04|1e-05|   -1.50"),
        ("%t %v %T %T %T", [True, None, 1, "a", {}], "true <nil> int64 string map[string]interface {}"),
        ("%d %s %z", ["a", 1, 1.5], "%!d(string=a) %!s(int64=1) %!z(float64=1.5)"),
        ("%d", [], "%!d(MISSING)"),
        ("x", ["a", None], "x%!(EXTRA string=a, <nil>)"),
        ("%*d|%-*d|%.*f", [5, 1, 3, 2, 1, 2.55], "    1|2  |2.5"),
        ("100%% %", [], "100% %!(NOVERB)"),
        ("%5d|%+d|%-6s|%.1f", ["a", 1.5, 2, 3], "%!d(string=    a)|%!d(float64=+1.5)|%!s(int64=2     )|%!f(int64=3)"),
        (
            "%+v|%#v|%#v|%#x|%+q",
            [5, "a", {"k": [None, 1]}, "ab", "ü"],
            '5|"a"|map[string]interface {}{"k":[]interface {}{interface {}(nil), 1}}|0x6162|"\\u00fc"',
        ),
        (
            "%x|%X|%b|%.*f",
            [3.14159, 1e21, 1e-7, -5, 1.5],
            "0x1.921f9f01b866ep+01|0X1.B1AE4D6E2EF5P+69|7555786372591432p-76|%!(BADPREC)1.500000",
        ),
        ("%U|%U|%#U|%#U", [65, -5, 65, 10], "U+0041|U+FFFFFFFFFFFFFFFB|U+0041 'A'|U+000A"),
        ("%q %d", [["a"], {"k": 2}], '["a"] map[%!d(string=k):2]'),
    ],
)
def test_formats_are_written_as_go_does(format, arguments, text):
    assert gofmt.sprintf(format, arguments) == text


def test_infinite_numbers_raise_a_problem():
    assert gofmt.sprintf(f"%{'9' * 5000}d", [1]).startswith("%!9(")
    for template in (f"{{{{{'9' * 5000}}}}}", f"{{{{1e{'9' * 5000}}}}}", f"{{{{0x{'f' * 5000}}}}}"):
        with pytest.raises(Problem, match="bad number syntax"):
            printed(template)


def test_every_function_reports_its_number_of_arguments():
    assert len(FUNCTIONS) > 20
    assert set(FUNCTIONS) == set(COUNTS)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=parts.given(200), deadline=None)
@given(st.text("%vsdqxXtfeEgGTUcbo+-# 0123.*a\u20ac\n", max_size=12), st.lists(VALUES, max_size=4))
def test_every_format_writes_every_value(format, arguments):
    assert isinstance(gofmt.sprintf(format, arguments), str)


PIECES = st.sampled_from(
    [
        *"{}().|,:=$'\"`\\-+1 \n",
        "{{",
        "}}",
        "{{.",
        "{{- ",
        " -}}",
        "{{end}}",
        "{{else}}",
        "{{if ",
        "{{range ",
        "{{with ",
        "{{range $i, $x := .items}}",
        "{{template ",
        '"t"',
        "{{define ",
        "{{break}}",
        "nil",
        "true",
        "eq ",
        "index ",
        "len ",
        "printf ",
        "$x",
        " := ",
        ".items",
        "/*",
        "*/",
        "é",
        "%d",
    ]
)


@settings(max_examples=parts.given(200), deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join), st.booleans())
@example('{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}', True)
@example("{{printf 1}}", True)
def test_every_text_is_printed_or_raises_a_problem(template, allow_missing):
    try:
        text = printed(template, allow_missing=allow_missing)
    except Problem as problem:
        assert str(problem)
    else:
        assert isinstance(text, str)


CALLS = st.builds(
    lambda name, arguments: f"{{{{{name} {' '.join(arguments)}}}}}",
    st.sampled_from(sorted(FUNCTIONS)),
    st.lists(
        st.sampled_from([".", ".kind", ".items", ".map", ".missing", "nil", "0", "-1", "99", "1.5", "true", '"a"', '"%d"', '"b"']),
        max_size=4,
    ),
)


@settings(max_examples=parts.given(200), deadline=None)
@given(CALLS)
def test_every_function_accepts_every_value_or_raises_a_problem(template):
    try:
        assert isinstance(printed(template), str)
    except Problem as problem:
        assert str(problem)
