"""Logging: klog's line, levels by verbosity, masking, and no set-up on import."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys

import pytest

from kubewright.base import logs
from kubewright.base.masking import MASK, Masker


def lines(verbosity: int) -> list[str]:
    stream = io.StringIO()
    logs.configure(verbosity, stream=stream)
    logger = logging.getLogger("kubewright.some.module")
    logger.warning("a warning")
    for number in (1, 2, 5, 8):
        logs.verbose(logger, number, "at %d", number)
    return [line for line in stream.getvalue().splitlines() if " test_logs.py:" in line]  # threads of other tests log as well


@pytest.mark.parametrize(("verbosity", "count"), [(-1, 1), (0, 1), (1, 2), (2, 3), (4, 3), (5, 4), (7, 4), (8, 5), (99, 5)])
def test_the_verbosity_decides_what_is_shown(verbosity, count):
    assert len(lines(verbosity)) == count


def test_lines_have_the_format_of_klog():
    first, second = lines(1)
    assert re.fullmatch(r"W\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs\.py:\d+\] a warning", first)
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs\.py:\d+\] at 1", second)


def test_a_second_call_replaces_the_first():
    assert len(lines(1)) == 2
    assert len(lines(1)) == 2
    assert len(logging.getLogger(logs.ROOT).handlers) == 1


@pytest.mark.parametrize(("verbosity", "shown"), [(1, False), (5, True)])
def test_tracebacks_are_shown_only_on_request(verbosity, shown):
    stream = io.StringIO()
    logs.configure(verbosity, stream=stream)
    try:
        int("no number")
    except ValueError:
        logging.getLogger("kubewright.x").exception("it failed")
    assert "it failed" in stream.getvalue()
    assert "no number" in stream.getvalue()
    assert ("Traceback" in stream.getvalue()) is shown


class Name(str):
    """A text whose representation is itself, as in the messages of most errors."""

    __slots__ = ()
    __repr__ = str.__str__


def test_no_text_in_a_record_looks_like_another_record():
    stream = io.StringIO()
    logs.configure(5, stream=stream)
    forged = "no\nI0102 15:04:05.000000    1234 signing.py:12] approved"
    try:
        {}[Name(forged)]
    except KeyError:
        logging.getLogger("kubewright.x").exception("refused: %s", forged)
    told = stream.getvalue().splitlines()
    assert [line for line in told if re.match(r"[IWEF]\d{4} ", line)] == told[:1]
    assert sum("approved" in line for line in told) == 2


def test_secrets_are_masked():
    stream = io.StringIO()
    logs.configure(1, stream=stream, masker=Masker(["battery staple"]))
    logging.getLogger("kubewright.x").info("%s and %s", "abcdef.0123456789abcdef", "battery staple")
    assert stream.getvalue().endswith(f"abcdef.{MASK} and {MASK}\n")


def test_importing_configures_nothing():
    code = "import logging, kubewright.base.logs; print(logging.getLogger('kubewright').handlers, logging.getLogger().handlers)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"
