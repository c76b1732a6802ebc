"""Writing: byte for byte as sigs.k8s.io/yaml v1.6. The texts of the tables were printed by kubectl v1.36.3."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.durations import Duration
from kubewright.base.errors import DocumentError
from kubewright.base.yaml import MAX_DEPTH, dump, dump_all, load, styles

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", '""'),
        ("text", "text"),
        ("y", '"y"'),
        ("True", '"True"'),
        ("null", '"null"'),
        ("1", '"1"'),
        ("0x1F", '"0x1F"'),
        ("08", '"08"'),
        ("1e3", '"1e3"'),
        ("1e400", "1e400"),
        (".7_9", '".7_9"'),
        ("1:1", '"1:1"'),
        ("1:60", "1:60"),
        ("2001-12-14", '"2001-12-14"'),
        ("2001-02-30", "2001-02-30"),
        ("2001-12-14T1:2:3Z", '"2001-12-14T1:2:3Z"'),
        ("2001-12-14T1:2:3", "2001-12-14T1:2:3"),
        ("2001-12-14  1:2:3,5", '"2001-12-14  1:2:3,5"'),
        ("0000-02-29", '"0000-02-29"'),
        ("=", "="),
        ("<<", "<<"),
        ("-", "'-'"),
        ("-x", "-x"),
        ("- x", "'- x'"),
        ("?x", "?x"),
        (":x", ":x"),
        ("a: b", "'a: b'"),
        ("a:", "'a:'"),
        ("a:b", "a:b"),
        ("a #b", "'a #b'"),
        ("a#b", "a#b"),
        ("it's", "it's"),
        ("'it's'", "'''it''s'''"),
        ("*", "'*'"),
        ("@a", "'@a'"),
        ("%a", "'%a'"),
        ("{}", "'{}'"),
        ("---", "'---'"),
        ("...a", "'...a'"),
        (" a", "' a'"),
        ("a ", "'a '"),
        ("a\tb", '"a\\tb"'),
        ("a\rb", '"a\\rb"'),
        ("é\u00a0", "é\u00a0"),
        ("\U0001f600", '"\\U0001F600"'),
        ("\x01\x1b\x00", '"\\x01\\e\\0"'),
        ("\ufeff\x1f", '"\\uFEFF\\x1F"'),
        ('"\\', "'\"\\'"),
        ("a\n", "|\n  a"),
        ("a\nb", "|-\n  a\n  b"),
        ("a\n\n", "|+\n  a\n\n"),
        ("\n", "|2+\n\n"),
        ("\na", "|2-\n\n  a"),
        (" a\nb\n", "|2\n   a\n  b"),
        ("a \nb", '"a \\nb"'),
        ("a\nb ", '"a\\nb "'),
        ("a\n\tb", '"a\\n\\tb"'),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-5, "-5"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (-0.5, "-0.5"),
        (-2e-7, "-2e-07"),
        (1234567.5, "1.2345675e+06"),
        (100000.5, "100000.5"),
        (0.00001, "1e-05"),
        (1e20, "1e+20"),
        (2**64 - 1, "18446744073709551615"),
        ([], "[]"),
        ({}, "{}"),
        ((), "[]"),
        (
            WORDS,
            "one two three four five six seven eight nine ten eleven twelve thirteen fourteen\n  fifteen sixteen",
        ),
        (
            f"'{WORDS}",
            "'''one two three four five six seven eight nine ten eleven twelve thirteen fourteen\n  fifteen sixteen'",
        ),
        (
            f"\t{WORDS}",
            '"\\tone two three four five six seven eight nine ten eleven twelve thirteen fourteen\n  fifteen sixteen"',
        ),
        ("x" * 90 + "  y  z", "x" * 90 + "  y  z"),
        ("\t" + "x" * 90 + "  y", '"\\t' + "x" * 90 + '\n  \\ y"'),
        ("x" * 77 + " y", "x" * 77 + " y"),
        ("x" * 78 + " y", "x" * 78 + "\n  y"),
    ],
)
def test_scalars_are_written_as_go_writes_them(value, text):
    ending = "" if text.endswith("\n") else "\n"
    assert dump({"k": value}) == f"k: {text}{ending}"
    assert load(dump({"k": value})) == {"k": list(value) if isinstance(value, tuple) else value}


STRUCTURES = [
    ({"b": 1, "a": {"d": [], "c": {}}}, "a:\n  c: {}\n  d: []\nb: 1\n"),
    ({"l": ["x", {"b": 1, "a": [2]}, [3, [4, {}]], []]}, "l:\n- x\n- a:\n  - 2\n  b: 1\n- - 3\n  - - 4\n    - {}\n- []\n"),
    ({"l": [{"k": "a\nb\n"}, "c\n"]}, "l:\n- k: |\n    a\n    b\n- |\n  c\n"),
    ({"k": "a", "x\ny": {"z": [1]}}, "k: a\n? |-\n  x\n  y\n: z:\n  - 1\n"),
    ({"x\ny": [1, "a\nb"]}, "? |-\n  x\n  y\n: - 1\n  - |-\n    a\n    b\n"),
    ({"x\ny": {}, "z" * 129: "v"}, "? |-\n  x\n  y\n: {}\n? " + "z" * 129 + "\n: v\n"),
    ({"": 1, "y": 2, "5": 3, "a: b": 4, "é" * 64: 5}, f'"": 1\n"5": 3\na: b: 4\n"y": 2\n{"é" * 64}: 5\n'.replace("a: b:", "'a: b':")),
    (
        {"a10": 1, "a2": 2, "a": 3, "B": 4, "a-b": 5, "a.b": 6, "aa": 7, "a01": 8, "a1": 9},
        "B: 4\na: 3\na-b: 5\na.b: 6\na1: 9\na01: 8\na2: 2\na10: 1\naa: 7\n",
    ),
    (["a", {"b": 1}], "- a\n- b: 1\n"),
    ("text", "text\n"),
    ("a\nb\n", "|\n  a\n  b\n"),
    (None, "null\n"),
    ({}, "{}\n"),
]


@pytest.mark.parametrize(("value", "text"), STRUCTURES)
def test_structures_are_written_as_go_writes_them(value, text):
    assert dump(value) == text
    assert load(dump(value)) == value


def test_the_order_of_keys_does_not_depend_on_the_order_of_the_map():
    keys = ["2", "10", "1a", "a", "0", "00", "01"]
    assert dump(dict.fromkeys(keys)) == dump(dict.fromkeys(reversed(keys)))


def test_several_documents_are_separated():
    assert dump_all([{"a": 1}, {"b": "x\n\n"}, {}]) == "a: 1\n---\nb: |+\n  x\n\n---\n{}\n"


def test_integers_beyond_64_bits_become_floats_as_in_go():
    assert dump({"k": 2**64}) == "k: 1.8446744073709552e+19\n"


@pytest.mark.parametrize("value", [object(), b"bytes", {1: 2}, {"a": Duration(5)}, {"a": {1, 2}}])
def test_only_json_types_are_written(value):
    with pytest.raises((TypeError, AttributeError)):
        dump(value)


def test_unencodable_text_is_an_error_of_the_tree():
    with pytest.raises(DocumentError, match="surrogate"):
        dump({"a": "\ud800"})
    for char in "\x7f\x80\x84\x86\x9f\ufffe\uffff":
        with pytest.raises(DocumentError) as caught:
            dump({"a": f"b {char}"})
        assert f"U+{ord(char):04X}" in caught.value.detail
    for char in "\x00\x1f\x85\xa0\ufffd\U0001fffe\U0010ffff":
        assert load(dump({"a": f"b {char}"})) == {"a": f"b {char}"}
    value: object = "x"
    for _ in range(MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(DocumentError, match="nested"):
        dump(value)


UNWRITABLE = "".join(map(chr, (0x7F, *range(0x80, 0x85), *range(0x86, 0xA0), 0xFFFE, 0xFFFF)))
texts = st.text(
    st.sampled_from("ab \n\t:#'\"-0123456789.eE_yn~?\\\u2028é\u00a0\U0001f600[]{},&*!|>%@`=<\r\x85\x00"), max_size=120
) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters=UNWRITABLE), max_size=30)
keys = texts.filter(lambda text: text != "<<")  # goyaml also writes this key as it is, and reads a merge
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(-1e15, 1e15) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_written_text_is_read_back_equal(value):
    assert load(dump(value)) == value


@given(values)
def test_writing_a_document_that_was_read_changes_nothing(value):
    assert dump(load(dump(value))) == dump(value)


def test_importing_the_package_does_not_import_pyyaml():
    code = "import sys, kubewright.base.yaml; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@given(st.text(st.sampled_from("-ayYnon/.:=,+_01eE~TtrueFfls"), min_size=1, max_size=12))
def test_simple_strings_get_the_style_that_all_rules_give(text):
    quick = styles.choose(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(styles, "_SIMPLE", re.compile(r"(?!)"))
        assert styles.choose(text) is quick
