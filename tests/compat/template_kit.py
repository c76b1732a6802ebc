"""Generated templates and paths for `-o`: mostly valid ones, and some that are put together from pieces."""

from __future__ import annotations

from hypothesis import strategies as st

WORDS = st.sampled_from(
    (
        ".images",
        ".kind",
        ".",
        "$",
        ".missing",
        "nil",
        "0",
        "1",
        "-1",
        "2.5",
        "1e3",
        "0x1F",
        "'a'",
        '"x"',
        '"%v %5d"',
        "`r`",
        "true",
        "false",
        "(len .kind)",
        "(index .images 0)",
        "(.kind)",
        "$x",
        "(print 1)",
    )
)
FUNCTIONS = st.sampled_from(
    (
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "len",
        "index",
        "slice",
        "print",
        "printf",
        "println",
        "and",
        "or",
        "not",
        "html",
        "js",
        "urlquery",
        "exists",
        "call",
    )
)
TEXTS = st.sampled_from((" a ", "\n", "x", " "))
BRACES = st.sampled_from((("{{", "}}"), ("{{", "}}"), ("{{- ", " -}}"), ("{{ ", " }}")))

_CALLS = st.builds(lambda name, words: " ".join([name, *words]), FUNCTIONS, st.lists(WORDS, max_size=3))
_STAGES = st.lists(st.builds(lambda name, words: " ".join([name, *words]), FUNCTIONS, st.lists(WORDS, max_size=1)), max_size=1)
PIPELINES = st.builds(lambda first, stages: " | ".join([first, *stages]), WORDS | _CALLS, _STAGES)


def _action(braces: tuple[str, str], inside: str) -> str:
    return f"{braces[0]}{inside}{braces[1]}"


_ACTIONS = st.builds(
    lambda braces, name, pipeline: _action(braces, name + pipeline), BRACES, st.sampled_from(("", "", "$x := ")), PIPELINES
)
_OTHERWISE = st.sampled_from(("", "", "{{else}}no", "{{else if .kind}}yes", "{{else with .kind}}{{.}}"))
_LEAVES = st.sampled_from(("", "", "", "{{break}}", "{{if eq . 1}}{{continue}}{{end}}"))
_OVER = st.sampled_from((".images", ".", "3", ".missing", ".kind"))
_NAMES = st.sampled_from(("", "$x := ", "$i, $x := "))


def _bodies(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(
            lambda word, pipeline, body, other: f"{{{{{word} {pipeline}}}}}{body}{other}{{{{end}}}}",
            st.sampled_from(("if", "with")),
            PIPELINES,
            inner,
            _OTHERWISE,
        ),
        st.builds(
            lambda names, over, body, leave, other: f"{{{{range {names}{over}}}}}{body}{leave}{other}{{{{end}}}}",
            _NAMES,
            _OVER,
            inner,
            _LEAVES,
            st.sampled_from(("", "{{else}}none")),
        ),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.builds(lambda body, word: f'{{{{define "t"}}}}{body}{{{{end}}}}{{{{template "t" {word}}}}}', inner, WORDS),
    )


GO_TEMPLATES = st.recursive(TEXTS | _ACTIONS | _ACTIONS, _bodies, max_leaves=5)

VERBS = st.sampled_from(
    (*tuple("dsvqxXtfeEgGTUcboz%"), "+v", "#v", "#x", "5d", "-5s", "05d", "+d", " d", ".2f", "8.3f", "-8q", ".1s", "*d", ".*f", "x y")
)
FORMATS = st.builds(
    lambda verbs, words: f'{{{{printf "{"|".join(f"%{verb}" for verb in verbs)}" {" ".join(words)}}}}}',
    st.lists(VERBS, min_size=1, max_size=3),
    st.lists(
        st.sampled_from(("1", "-5", "255", "3.14159", "1e21", "1e-7", "true", "nil", '"a\\"b"', '"ü€"', ".kind", ".images", ".missing")),
        max_size=3,
    ),
)

_PIECES = st.sampled_from(
    (
        ".images",
        ".kind",
        "[0]",
        "[*]",
        "[1:3]",
        "[-1]",
        "[::2]",
        "[0,1]",
        "['kind','apiVersion']",
        "@",
        "$",
        '[?(@=="a")]',
        "[?(@)]",
        "[?(@.x)]",
        "'q'",
        '"\\n"',
        "1",
        "1.5",
        "true",
        " ",
        ".*",
        ".missing",
        '[?(@>"registry.k8s.io/l")]',
    )
)
_EXPRESSIONS = st.lists(_PIECES, min_size=1, max_size=4).map(lambda pieces: f"{{{''.join(pieces)}}}")
_RANGES = st.builds(
    lambda over, body: f"{{range {over}}}{body}{{end}}", st.sampled_from((".images[*]", ".images", ".x", ".kind")), _EXPRESSIONS
)
_BROKEN = st.lists(st.sampled_from([*"{}[]().*:,-\\'\"@$", "range ", "end", "?(", "==", "x", ".images", "ü"]), max_size=8).map("".join)
PATHS = st.one_of(
    _EXPRESSIONS,
    st.lists(_EXPRESSIONS | _RANGES | TEXTS, min_size=1, max_size=3).map("".join),
    _BROKEN.map(lambda text: f"{{{text}}}"),
    _BROKEN,
)
