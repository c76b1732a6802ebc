"""Flags and their values, by pflag's rules and in its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import UsageError
from kubewright.cli.parsing import pflag
from kubewright.cli.rows.model import BOOL, DURATION, INT32, LEVEL, LIST, MODULES, PAIRS, Flag

FLAGS = (
    Flag("v", "", kind=LEVEL, default=0, short="v"),
    Flag("vmodule", "", kind=MODULES),
    Flag("force", "", kind=BOOL, default=False, short="f"),
    Flag("yes", "", kind=BOOL, default=False, short="y"),
    Flag("output", "", short="o"),
    Flag("port", "", kind=INT32),
    Flag("names", "", kind=LIST),
    Flag("pairs", "", kind=PAIRS),
    Flag("ttl", "", kind=DURATION),
)


def scan(*words: str) -> pflag.Scanned:
    return pflag.scan(words, FLAGS, see="see --help")


@pytest.mark.parametrize(
    ("words", "values", "arguments"),
    [
        (["-v5"], {"v": 5}, []),
        (["-v=5"], {"v": 5}, []),
        (["-v", "5", "x"], {"v": 5}, ["x"]),
        (["--v", "010"], {"v": 10}, []),
        (["-fy"], {"force": True, "yes": True}, []),
        (["-fyv3", "x"], {"force": True, "yes": True, "v": 3}, ["x"]),
        (["-fo", "json", "x"], {"force": True, "output": "json"}, ["x"]),
        (["-yf=false", "x"], {"yes": True, "force": False}, ["x"]),
        (["-o="], {"output": "="}, []),
        (["--output="], {"output": ""}, []),
        (["--force", "false"], {"force": True}, ["false"]),
        (["--output", "--force"], {"output": "--force"}, []),
        (["x", "--force", "--", "--yes", "-"], {"force": True}, ["x", "--yes", "-"]),
        (["-", ""], {}, ["-", ""]),
        (["--port", "0x10"], {"port": 16}, []),
        (["--port=010"], {"port": 8}, []),
        (["--port=1_000"], {"port": 1000}, []),
        (["--port=-5"], {"port": -5}, []),
        (["--names", "a,b", "--names=c"], {"names": ("a", "b", "c")}, []),
        (["--names", 'a,"b,c",,"d""e"'], {"names": ("a", "b,c", "", 'd"e')}, []),
        (["--names="], {"names": ()}, []),
        (["--pairs", "a=b,c=", "--pairs", "d=e"], {"pairs": ("a=b", "c=", "d=e")}, []),
        (["--ttl", "1h30m"], {"ttl": "1h30m"}, []),
        (["--vmodule", "a=1,b*=2,"], {"vmodule": "a=1,b*=2,"}, []),
        (["-o", "a", "-ob"], {"output": "b"}, []),
    ],
)
def test_words_become_values_and_arguments(words, values, arguments):
    found = scan(*words)
    assert (found.values, found.arguments) == (values, arguments)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nonsense"], "unknown flag: --nonsense"),
        (["--nonsense=5"], "unknown flag: --nonsense"),
        (["--out"], "unknown flag: --out"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["-fx5"], "unknown shorthand flag: 'x' in -x5"),
        (["-f="], "unknown shorthand flag: '=' in -="),
        (["---x"], "bad flag syntax: ---x"),
        (["--=x"], "bad flag syntax: --=x"),
        (["--output"], "flag needs an argument: --output"),
        (["-o"], "flag needs an argument: 'o' in -o"),
        (["-fo"], "flag needs an argument: 'o' in -o"),
        (["-vx"], 'invalid argument "x" for "-v, --v" flag: "x" is not a whole number'),
        (["-v0x1"], 'invalid argument "0x1" for "-v, --v" flag: "0x1" is not a whole number'),
        (
            ["--port", "9" * 11],
            f'invalid argument "{"9" * 11}" for "--port" flag: "{"9" * 11}" is too large or too small',
        ),
        (["--force=maybe"], 'invalid argument "maybe" for "-f, --force" flag: "maybe" is neither true nor false'),
        (["--names", 'a"b'], 'invalid argument "a\\"b" for "--names" flag: parse error on line 1, column 2: bare " in non-quoted-field'),
        (["--pairs", "a"], 'invalid argument "a" for "--pairs" flag: malformed key=value pair in flag value: a'),
        (["--ttl", "5"], 'invalid argument "5" for "--ttl" flag: time: missing unit in duration "5"'),
        (["--ttl", "x"], 'invalid argument "x" for "--ttl" flag: time: invalid duration "x"'),
        (["--vmodule", "a=-1"], 'invalid argument "a=-1" for "--vmodule" flag: negative value for vmodule level'),
        (["--vmodule", "=1"], 'invalid argument "=1" for "--vmodule" flag: syntax error: expect comma-separated list of filename=N'),
        (["--vmodule", "a=1=2"], 'invalid argument "a=1=2" for "--vmodule" flag: syntax error: expect comma-separated list of filename=N'),
        (["--vmodule", "x"], 'invalid argument "x" for "--vmodule" flag: syntax error: expect comma-separated list of filename=N'),
    ],
)
def test_errors_have_the_words_of_pflag(words, message):
    with pytest.raises(UsageError) as caught:
        scan(*words)
    assert caught.value.what == message
    assert caught.value.remedy


def test_the_first_wrong_word_is_reported():
    with pytest.raises(UsageError, match="unknown flag: --a"):
        scan("--a", "--b", "--port=x")


@pytest.mark.parametrize(
    ("word", "remedy"), [("--fore", 'did you mean "--force"?'), ("-output", 'did you mean "--output"?'), ("-z", "see --help")]
)
def test_a_similar_flag_is_suggested(word, remedy):
    with pytest.raises(UsageError) as caught:
        pflag.scan([word], [flag for flag in FLAGS if flag.short != "o"] + [Flag("output", "")], see="see --help")
    assert caught.value.remedy == remedy


@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from(["{:d}", "{:#x}", "{:#o}", "{:#b}", "{:+d}", "{:_d}"]))
def test_an_integer_is_read_in_every_form_of_go(value, form):
    assert pflag.integer(form.format(value), bits=32) == value


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n"), max_size=5), min_size=1).filter(lambda items: items != [""]))
def test_a_list_survives_being_written_as_csv(items):
    assert pflag.items(",".join('"' + item.replace('"', '""') + '"' for item in items)) == tuple(items)


@given(st.text(max_size=8), st.sampled_from(FLAGS))
def test_any_text_is_a_value_or_a_usage_error(text, flag):
    try:
        pflag.read_value(flag, text)
    except UsageError as error:
        assert f"--{flag.name}" in error.what
