"""The line of output that says why a component died."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.local.supervisor.termination import failure_summary, readable, termination_message

BUSY = (
    'E1121 12:15:18.556240   28321 run.go:72] "command failed" '
    'err="failed to create listener: failed to listen on 127.0.0.11:6443: listen tcp 127.0.0.11:6443: bind: address already in use"'
)
FATAL = (
    '{"level":"fatal","ts":"2026-11-21T12:10:33.981369Z","caller":"etcdmain/etcd.go:183","msg":"discovery failed",'
    '"error":"listen tcp 127.0.0.77:2380: bind: address already in use","stacktrace":"go.etcd.io/etcd"}'
)
USAGE = ["Usage:", "", *(f"  etcd {number}" for number in range(18)), ""]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ""),
        (["", " "], ""),
        (["hello", "bye", ""], "bye"),
        (["noise", BUSY], "command failed: failed to create listener: failed to listen on 127.0.0.11:6443: listen tcp 127.0.0.11:6443: bind: address already in use"),
        ([FATAL], "discovery failed: listen tcp 127.0.0.77:2380: bind: address already in use"),
        (["Usage:", "  -h", "", "Error: unknown flag: --nope"], "Error: unknown flag: --nope"),
        (["flag provided but not defined: -nope", *USAGE], "flag provided but not defined: -nope"),
        (['invalid value "x" for flag -listen-client-urls: nonsense', *USAGE], 'invalid value "x" for flag -listen-client-urls: nonsense'),
        (["panic: runtime error", "goroutine 1 [running]:", "main.main()"], "panic: runtime error"),
        (["x" * 400], "x" * 300 + "…"),
    ],
)  # fmt: skip
def test_the_line_with_the_reason_is_found(lines: list[str], expected: str) -> None:
    assert failure_summary(lines) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("I1121 12:15:18.729743   28329 serving.go:411] Generated self-signed cert in-memory", "Generated self-signed cert in-memory"),
        ('I1121 12:15:18.729743   28329 a.go:1] "Started" name="x"', 'Started name="x"'),
        (r'E1121 12:15:18.729743   28329 a.go:1] "failed" err="a \"b\"\nc"', 'failed: a "b" c'),
        ('{"level":"info","msg":"ready"}', "ready"),
        ('{"level":"info","msg":"cut', '{"level":"info","msg":"cut'),
        ("  plain ", "plain"),
    ],
)
def test_lines_are_formatted_for_users(line: str, expected: str) -> None:
    assert readable(line) == expected


def test_the_line_with_the_reason_is_kept_however_long_the_usage() -> None:
    words = termination_message(["flag provided but not defined: -nope", *USAGE])
    assert len(words) == 20
    assert words[0] == "flag provided but not defined: -nope"
    assert termination_message(["a", "b"]) == ("a", "b")


@given(st.lists(st.text(max_size=30) | st.sampled_from([BUSY, FATAL, '{"level":"fatal"}', '{"level":[]']), max_size=30))
def test_no_output_breaks_the_search_for_the_reason(lines: list[str]) -> None:
    assert len(failure_summary(lines)) <= 301
    assert len(termination_message(lines)) == min(20, len(lines))
