"""Reading: how goyaml v2 reads scalars, keys, merges, aliases and separators (kubeadm v1.36: util/config/common.go), and errors about limits."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.base.errors import DocumentError
from kubewright.base.yaml import MAX_BYTES, MAX_DEPTH, dump, load, load_all


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(word, True) for word in ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE")],
        *[(word, False) for word in ("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE")],
        *[
            (word, word)
            for word in ("yEs", "tRUE", "nO", "nan", "inf", "12:30", "1:1", "2001-12-14", "2001-12-14T21:59:43.10Z", "=", "_1", "1e400")
        ],
        ("", None),
        ("~", None),
        ("null", None),
        ("0x192B", 6443),
        ("0X192b", 6443),
        ("016053", 7211),
        ("0o17", 15),
        ("0b101", 5),
        ("0b-101", -5),
        ("6443.0", 6443),
        ("1_000", 1000),
        ("+1", 1),
        ("-0x10", -16),
        ("08", 8),
        ("0.5", 0.5),
        (".5", 0.5),
        (".7_9", 0.79),
        ("-.5", -0.5),
        ("1e3", 1000),
        ("1.", 1),
        ("18446744073709551615", 18446744073709551615),
        ("123456789012345678901", 123456789012345680000),
        ("-9223372036854775808", -9223372036854775808),
        ("+9223372036854775808", 9223372036854776000),
        ("0x1g", "0x1g"),
        ("!!str 5", "5"),
        ("!foo bar", "bar"),
        ("!foo 5", "5"),
        ("! 5", "5"),
        ("!!binary aGVsbG8=", "hello"),
        ("!!int '5'", 5),
        ("!!float 5", 5),
        ("!!bool yes", True),
        ("!!null ''", None),
        ("!!timestamp 2001-12-14", "2001-12-14"),
        ("'y'", "y"),
        ('"5"', "5"),
        ('"\\U0001F600\\x41"', "\U0001f600A"),
        ("a#b", "a#b"),
        ("a #b", "a"),
    ],
)
def test_scalars_are_read_as_by_go(text, value):
    found = load(f"v: {text}\n")
    assert found == {"v": value}
    assert type(found["v"]) is type(value)


def test_keys_become_strings():
    assert load("{y: a, 1: b, 1.5: c, off: d, 2020-01-01: e, 0x10: f}") == {
        "true": "a",
        "1": "b",
        "1.5": "c",
        "false": "d",
        "2020-01-01": "e",
        "16": "f",
    }


def test_merge_keys_fill_in_and_the_first_of_several_maps_wins():
    (document,) = load_all("a: &a {x: 1, w: 2}\nb: &b {x: 3, z: 4}\nc:\n  <<: *a\n  v: 5\nd:\n  <<: [*a, *b]\ne:\n  '<<': quoted\n")
    found = document.value
    assert found["c"] == {"x": 1, "w": 2, "v": 5}
    assert found["d"] == {"x": 1, "w": 2, "z": 4}
    assert found["e"] == {"<<": "quoted"}


def test_a_key_that_overrides_a_merged_one_counts_as_duplicate_and_wins():
    (document,) = load_all("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n")
    assert document.value == {"a": {"x": 1}, "b": {"x": 2}}
    assert document.duplicates == ("b.x",)


def test_duplicates_are_listed_with_path_and_line_and_the_last_one_wins():
    (document,) = load_all("a:\n- b: 1\n  b: 2\n- {}\nc: 3\nc: 4\n", source="f.yaml")
    assert document.value == {"a": [{"b": 2}, {}], "c": 4}
    assert document.duplicates == ("a[0].b", "c")
    assert [document.where(path) for path in document.duplicates] == ["f.yaml:3:3", "f.yaml:6:1"]


def test_a_single_document_refuses_duplicates_naming_file_line_and_key():
    with pytest.raises(DocumentError) as caught:
        load("a: 1\nb:\n  c: 1\n  c: 2\n", source="f.yaml")
    assert str(caught.value) == "f.yaml: key b.c is given twice: f.yaml:4:3"


def test_at_most_a_hundred_duplicates_are_listed():
    (document,) = load_all("a: 1\n" * 1000)
    assert document.duplicates == ("a",) * 100


TEXT = """\
# a comment
apiVersion: v1
etcd:
  local:
    extraArgs:
    - name: a
      value: b
    - name: c
      value: d
list: [1,
  2]
map: {a: 1,
  b: 2}
"""


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        ("", 2, 0),
        ("apiVersion", 2, 1),
        ("etcd", 3, 1),
        ("etcd.local", 4, 3),
        ("etcd.local.extraArgs", 5, 5),
        ("etcd.local.extraArgs[0]", 6, 7),
        ("etcd.local.extraArgs[1].value", 9, 7),
        ("etcd.local.extraArgs[1].missing.deeper", 8, 7),
        ("etcd.local.extraArgs[7]", 5, 5),
        ("list[0]", 10, 8),
        ("list[1]", 11, 3),
        ("map.a", 12, 7),
        ("map.b", 13, 3),
        ("map[b]", 13, 3),
        ("missing", 2, 0),
    ],
)
def test_lines_and_columns_of_fields_are_known(path, line, column):
    assert load_all(TEXT)[0].position_of(path) == (line, column)
    assert load_all("x: 1\n---\n" + TEXT)[1].position_of(path) == (line + 2, column)


def test_a_position_is_shown_with_the_source_or_in_words():
    [named], [nameless] = load_all("é: {ü: 1}\n", source="f.yaml"), load_all("é: {ü: 1}\n")
    assert (named.where("é.ü"), named.where(), named.where("x")) == ("f.yaml:1:5", "f.yaml:1", "f.yaml:1")
    assert (nameless.where("é.ü"), nameless.where()) == ("line 1, column 5", "line 1")


_NAMES = st.text(alphabet="abcdefgh", min_size=2, max_size=4)
_TREES = st.recursive(
    st.integers(0, 9),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(_NAMES, inner, min_size=1, max_size=3),
    max_leaves=12,
)


def _paths(value, path=""):
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in entries:
        below = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")
        yield below, key, part
        yield from _paths(part, below)


@settings(deadline=None)
@given(tree=st.dictionaries(_NAMES, _TREES, min_size=1, max_size=3), flow=st.booleans())
def test_the_position_of_a_field_is_that_of_its_name(tree, flow):
    text = json.dumps(tree) if flow else dump(tree)
    [document] = load_all(text)
    for path, key, part in _paths(tree):
        line, column = document.position_of(path)
        here = text.split("\n")[line - 1][column - 1 :]
        start = json.dumps(key) if flow else key
        if isinstance(key, int):
            start = str(part) if isinstance(part, int) else ("{", "[") if flow else ("-", min(part)) if isinstance(part, dict) else "-"
        assert here.startswith(start)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("\n", [None]),
        ("  \n\n", [None]),
        ("# only a comment\n", [None]),
        ("---\n", [None]),
        ("---", [None]),
        ("---\na: 1\n", [{"a": 1}]),
        ("a: 1\n---\n", [{"a": 1}]),
        ("a: 1\n---", [{"a": 1}]),
        ("a: 1", [{"a": 1}]),
        ("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\n--- # next\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\n---\n# x\n", [{"a": 1}, None]),
        ("# x\n---\na: 1\n", [None, {"a": 1}]),
        ("a: 1\n---\n\n\n---\nb: 2\n", [{"a": 1}, None, {"b": 2}]),
        ("---\n---\na: 1\n", [None, {"a": 1}]),
        ("a: 1\n...\nignored: [\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\r\nb:\r\n- 2\r\n---\r\nc: 3\r\n", [{"a": 1, "b": [2]}, {"c": 3}]),
        ("\ufeffa: 1\n", [{"a": 1}]),
        ("a: |\n  --- x\n  y\n", [{"a": "--- x\ny\n"}]),
        ('{"a": [1, 2.0, "\\u00e9", null, true]}', [{"a": [1, 2, "é", None, True]}]),
    ],
)
def test_texts_are_split_into_documents_as_kubeadm_does(text, values):
    assert [document.value for document in load_all(text)] == values
    assert [document.value for document in load_all(text.encode())] == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n--- b: 2\n", "line 2"),
        ("a: [1\n", "line 2"),
        ("a: 1\n---\nb: 1\nc: {\n", "line 5"),
        ("a: *nothing\n", 'anchor "nothing" is unknown'),
        ("a: &a [*a]\n", 'anchor "a" contains itself'),
        ("? [a]\n: b\n", "a key is a map or a list"),
        ("~: b\n", "a key is neither text"),
        ("a: .nan\n", "not finite"),
        ("a: .inf\n", "not finite"),
        ("a: !!int x\n", "does not fit its tag !!int"),
        ("a: !!int y\n", "does not fit its tag !!int"),
        ("a: !!binary '*'\n", "not base64"),
        ("a: {<<: 5}\n", "a merge needs a map"),
        ("a: &a [{b: 1}]\nc: {<<: *a}\n", "a merge needs a map"),
        ('a: "\\ud83d\\ude00"\n', "line 1"),
        ("a: \x00\n", "f.yaml"),
        ("a: \x7f\n", "f.yaml"),
        ("\tb: 1\n", "line 1"),
        ("[" * 100_000, f"more than {MAX_DEPTH} levels"),
        ("- " * 100_000, f"more than {MAX_DEPTH} levels"),
        ("{a: " * 100_000, f"more than {MAX_DEPTH} levels"),
        (
            "".join(" " * depth + "a:\n" for depth in range(500)),
            f"line {MAX_DEPTH + 1}, column {MAX_DEPTH + 1}: it is nested more than {MAX_DEPTH} levels",
        ),
        ("x" * (MAX_BYTES + 1), "larger than 3 MiB"),
        ("[" + "," * 600_000, "f.yaml"),
        ("[" + "a," * 600_000, "more than 250000 values"),
    ],
)
def test_unreadable_text_gives_one_error_that_names_the_source(text, said):
    with pytest.raises(DocumentError) as caught:
        load_all(text, source="f.yaml")
    assert "f.yaml" in str(caught.value)
    assert said in str(caught.value)


def test_bytes_that_are_not_utf_8_and_half_surrogates_are_refused():
    with pytest.raises(DocumentError, match="is not UTF-8 text: at byte 3"):
        load(b"a: \xff\n")
    with pytest.raises(DocumentError, match="surrogate"):
        load("a: \ud800\n")


def test_an_alias_bomb_is_refused_and_ordinary_aliases_are_not():
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{n}: &{n} [{','.join([f'*{p}'] * 10)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(DocumentError, match="repeats too much by aliases"):
        load(bomb)
    assert load("a: &a {x: 1}\nb: [*a, *a, *a]\n") == {"a": {"x": 1}, "b": [{"x": 1}] * 3}


def test_more_than_one_document_is_refused_if_one_is_expected():
    with pytest.raises(DocumentError, match="contains 2 documents where one is expected"):
        load("a: 1\n---\nb: 2\n", source="f.yaml")
    assert load("") is None


def test_errors_never_show_the_text():
    with pytest.raises(DocumentError) as caught:
        load_all('token: "abcdef.0123456789abcdef\nx: [', source="f.yaml")
    assert "abcdef" not in repr(caught.value.as_map())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(-1e15, 1e15) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_json_is_read_unchanged(value):
    text = json.dumps(value, ensure_ascii=False)
    if any(ord(char) > 0x7E and not char.isprintable() for char in text):
        return  # YAML's set of characters is smaller than JSON's
    assert load(text) == json.loads(text)


@given(st.text(alphabet=string.printable + "é\u2028", max_size=60) | st.binary(max_size=60))
def test_any_text_gives_documents_or_a_document_error(text):
    try:
        documents = load_all(text)
    except DocumentError:
        return
    assert all(load(dump(document.value)) == document.value for document in documents)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,}', "column 9: "),
        ('{"a": [1,]}', "column 10: "),
        ('{"a": 1}\n{"b": 2}', "line 2, column 1: "),
        ("{a: 1}", "column 2: "),
        ('\n {"a": 1} # c', "line 2, column 11: extra data"),
        ('{"a": 010}', "column 8: "),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": "x\ty"}', "column 9: "),
        ('{"a": 1}\n...', "line 2, column 1: "),
    ],
)
def test_text_that_begins_with_a_brace_is_json_if_both_forms_are_recognised(text, said):
    with pytest.raises(DocumentError) as caught:
        load_all(f"{text}\n---\nc: 1\n", source="f.yaml", recognise_json=True)
    assert caught.value.what in {"f.yaml is not JSON", "f.yaml is not YAML"}
    assert said in caught.value.detail


@pytest.mark.parametrize("text", ['{"a": 1}\n', '\n\n  {"a": 1}', '---\n{"a": 1,}', '# c\n{"a": 1,}', 'a: {"b": 1,}', "[1,]"])
def test_everything_else_is_yaml(text):
    assert len(load_all(text, recognise_json=True)) == 1


def test_numbers_of_json_keep_their_fraction():
    text = f'{{"a": 6443.0, "b": 1e3, "c": {"9" * 5000}, "d": -0}}'
    [json] = load_all(text, recognise_json=True)
    [plain] = load_all(text)
    assert [type(value) for value in json.value.values()] == [float, float, str, int]
    assert [type(value) for value in plain.value.values()] == [int, int, str, int]


@pytest.mark.parametrize("digits", [20, 21, 400, 4300, 4301, 1_000_000])
@pytest.mark.parametrize("text", ["{}", "-{}", "a: {}", "{}: b", "0x{}", "0{}", "1_{}"])
def test_a_number_of_any_length_is_read(text, digits):
    [document] = load_all(text.format("1" * digits)) if digits < 1025 or text != "{}: b" else [None]
    assert document is None or document.value is not None


@pytest.mark.parametrize("digits", [20, 400, 4301, 100_000])
@pytest.mark.parametrize("form", ["{}", "-{}", "0{}", "{}:59", "{}.5", "0x{}"])
def test_a_text_of_many_digits_is_written(form, digits):
    text = form.format("9" * digits)
    assert load(dump({"a": text})) == {"a": text}


def test_texts_repeated_by_aliases_count_each_time():
    text = f"a: &a {'x' * 30_000}\nb:\n" + "- *a\n" * 100
    assert len(load(text)["b"]) == 100
    with pytest.raises(DocumentError) as caught:
        load(text + "- *a\n" * 10)
    assert "it repeats too much by aliases" in caught.value.detail


def test_the_path_of_a_long_key_that_is_given_twice_is_cut():
    [document] = load_all(f"a:\n- b:\n    ? {'k' * 2000}\n    : 1\n    ? {'k' * 2000}\n    : 2\n")
    assert document.duplicates == (f"a[0].b.{'k' * 253}",)
    assert document.position_of(document.duplicates[0]) == (2, 3)
