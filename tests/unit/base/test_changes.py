"""The diff that a change shows."""

from __future__ import annotations

import difflib

from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.change import unified_diff

lines = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n", "x\x0cy\n"]), max_size=6).map("".join)
texts = st.builds("{}{}".format, lines, st.sampled_from(["", "end"]))


@given(st.just("") | texts, texts)
def test_a_difference_equals_that_of_the_standard_library(before, after):
    made = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), "n (found)", "n (desired)")
    assert unified_diff(before, after, name="n") == "".join(made)
