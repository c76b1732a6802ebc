"""What the `token` commands refuse before they contact a cluster, and that no refusal shows a secret."""

from __future__ import annotations

import pytest

from kubewright.cli.main import main

SECRET = "0123456789abcdef"
CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: aaaaaa.0123456789abcdef}]
"""


@pytest.fixture
def refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    def run(*argv: str) -> str:
        assert main(["token", *argv]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert SECRET not in err
        return err

    return run


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "kubeadm.yaml"
    path.write_text(CONFIG)
    return str(path)


def test_a_token_together_with_a_file_is_refused(refused, config):
    """kubeadm ignores the token and creates those of the file."""
    assert "exclude each other" in refused("create", f"abcdef.{SECRET}", "--config", config)


def test_flags_together_with_a_file_are_refused_by_name(refused, config):
    err = refused("create", "--config", config, "--ttl", "1h", "--description", "x")
    assert "--description, --ttl" in err


@pytest.mark.parametrize("token", [f"abcdef.{SECRET}x", f"ABCDEF.{SECRET}", f"abcdef{SECRET}"])
def test_an_invalid_token_is_refused_and_not_shown(refused, token):
    for command in ("create", "delete"):
        assert "token" in refused(command, token)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--usages", "flying"), "--usages"),
        (("--groups", "system:masters"), "--groups"),
        (("--certificate-key", "ab" * 32), "--print-join-command"),
        (("--certificate-key", "ab", "--print-join-command"), "certificate key"),
        (("--print-join-command", "--print-bootstrap-kubeconfig"), "exclude each other"),
        ((), "kubeconfig"),
    ],
)
def test_inconsistent_flags_are_reported(refused, argv, said):
    assert said in refused("create", f"abcdef.{SECRET}", *argv)


def test_an_empty_file_is_no_token(refused, tmp_path):
    (tmp_path / "token").write_text("\n\n")
    assert "is empty" in refused("create", str(tmp_path / "token"))
    assert "cannot be read" in refused("create", str(tmp_path / "other"))


def test_deleting_nothing_is_refused(refused):
    assert "no token is given" in refused("delete")
