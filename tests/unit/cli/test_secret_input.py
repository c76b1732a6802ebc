"""Tokens and certificate keys that are not on the command line, where every user of the machine can read them."""

from __future__ import annotations

import io
import sys

import pytest

from kubewright.base.errors import UsageError
from kubewright.cli.handlers import operation_requests
from kubewright.cli.parsing.parser import parse

TOKEN, OTHER, THIRD = "abcdef.0123456789abcdef", "fedcba.0123456789abcdef", "aaaaaa.0123456789abcdef"
KEY = "0123456789abcdef" * 4


@pytest.fixture
def typed(monkeypatch):
    return lambda *lines: monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def joining(*words: str):
    return operation_requests.join_request(parse(["join", "10.0.0.1:6443", *words], program="kubewright"), only=()).flags


def initial(*words: str):
    return operation_requests.init_request(parse(["init", *words], program="kubewright"), only=()).overrides


def test_standard_input_is_read_line_by_line(typed):
    typed(TOKEN, OTHER, THIRD, KEY)
    flags = joining("--discovery-token", "-", "--tls-bootstrap-token", "-", "--token", "-", "--certificate-key", "-")
    assert (flags.discovery_token, flags.tls_bootstrap_token, flags.token, flags.certificate_key) == (TOKEN, OTHER, THIRD, KEY)
    typed(TOKEN, KEY)
    overrides = initial("--certificate-key", "-", "--token", "-")  # in the order of the help, however they are given
    assert (overrides.token, overrides.certificate_key) == (TOKEN, KEY)


def test_a_path_is_read(tmp_path):
    token, key = tmp_path / "token", tmp_path / "key"
    token.write_text(f"{TOKEN}\nnot this\n")
    key.write_text(KEY)
    assert (joining("--token", str(token)).token, initial("--certificate-key", str(key)).certificate_key) == (TOKEN, KEY)


def test_values_on_the_command_line_are_used():
    assert (joining("--token", TOKEN).token, initial("--token", TOKEN).token, initial().token) == (TOKEN, TOKEN, None)
    assert joining().certificate_key == ""


@pytest.mark.parametrize("call", [joining, initial])
def test_unreadable_files_are_reported_without_their_content(call, tmp_path, typed):
    typed()
    with pytest.raises(UsageError, match="standard input is empty"):
        call("--token", "-")
    with pytest.raises(UsageError, match="cannot be read"):
        call("--token", str(tmp_path / "none"))
