"""The output of `token list`, and the objects of `-o json` and `-o yaml`, compared with those of kubeadm."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kubewright.base import yaml
from kubewright.base.records import replace
from kubewright.cli.handlers.tokens import text_list
from kubewright.lifecycle import bootstrap_tokens
from kubewright.tokens import BootstrapTokenString
from kubewright.tokens.secrets import StoredToken

REFERENCE = Path(__file__).parents[2] / "data" / "reference" / "structured-output"
NOW = datetime(2026, 11, 20, 19, 24, 20, tzinfo=UTC)
TOKEN = StoredToken(
    token=BootstrapTokenString("abcdef", "0123456789abcdef"),
    expiration="2026-11-21T19:24:14Z",
    usages=("authentication", "signing"),
    groups=("system:bootstrappers:kubeadm:default-node-token",),
)


def test_one_token_is_printed_as_by_kubeadm():
    assert text_list([TOKEN], now=NOW) == (REFERENCE / "token-list.txt").read_text()
    assert json.dumps(bootstrap_tokens.as_map(TOKEN), indent=4) == (REFERENCE / "token-list.json").read_text().rstrip("\n")
    assert yaml.dump(bootstrap_tokens.as_map(TOKEN)) == (REFERENCE / "token-list.yaml").read_text()


def test_empty_fields_are_left_out_of_objects_and_named_in_text():
    bare = StoredToken(token=TOKEN.token)
    assert list(bootstrap_tokens.as_map(bare)) == ["kind", "apiVersion", "token"]
    cells = text_list([bare], now=NOW).splitlines()[1].split()
    assert cells == ["abcdef.0123456789abcdef", "<forever>", "<never>", "<none>", "<none>", "<none>"]


def test_every_token_after_the_first_is_aligned_separately():
    never = replace(TOKEN, expiration="")
    lines = text_list([TOKEN, never], now=NOW).splitlines()
    assert len(lines) == 3
    assert lines[2] == text_list([never, never], now=NOW).splitlines()[2]
    assert lines[2].startswith("abcdef.0123456789abcdef   <forever>   <never>   authentication,signing   <none>")


@given(st.builds(StoredToken, token=st.just(TOKEN.token), description=st.text(), usages=st.tuples(st.text()), expiration=st.just("")))
def test_any_token_survives_yaml_and_json(token):
    shown = bootstrap_tokens.as_map(token)
    assert json.loads(json.dumps(shown)) == shown
    assert shown["token"] == "abcdef.0123456789abcdef"
