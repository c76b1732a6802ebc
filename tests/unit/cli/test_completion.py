"""Completion scripts: they name every command, their shells accept them, and they offer sub-commands and flags."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from kubewright.base.errors import UsageError
from kubewright.cli import main as entry
from kubewright.cli.handlers import completion
from kubewright.cli.parsing.parser import parse
from kubewright.cli.rows import commands

CHECK = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-config", "--no-execute"]}


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return {shell: completion.script(shell, program="kubeadm") for shell in completion.SHELLS}


@pytest.fixture
def path(request, scripts, tmp_path):
    """The script of a shell as a file; the test is skipped if that shell is not installed."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / f"completion.{shell}"
    path.write_text(scripts[shell])
    return path


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_is_printed_under_the_name_of_the_program(shell, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["/opt/bin/kubeadm"])
    assert entry.main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "kubeadm" in out
    assert not re.search(r"\b_*kubewright\b(?! )", re.sub(r"(~|\$[A-Z_]+)[^ ]*/kubewright|XDG\S*|kubewright/", "", out))


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_has_every_visible_command_and_flag(shell, scripts):
    rows = [row for row in commands.TABLE.every() if row.words]
    assert [row.path for row in rows if not row.hidden and row.words[-1] not in scripts[shell]] == []
    shown = {flag.name for row in rows for flag in row.flags if not flag.hidden}
    hidden = {flag.name for row in rows for flag in row.flags} - shown
    assert (len(shown) > 60, len(hidden) > 90) == (True, True)  # those of the kubelet without effect are accepted and not shown
    assert sorted(name for name in shown if name not in scripts[shell]) == []
    assert sorted(name for name in hidden if f"--{name}" in scripts[shell]) == []


@pytest.mark.parametrize("path", completion.SHELLS, indirect=True)
def test_the_shell_accepts_the_script(path):
    done = subprocess.run([*CHECK[path.suffix[1:]], path], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


OFFERED = [
    (["certs", ""], {"renew", "check-expiration"}, {"join"}),
    (["certs", "renew", "al"], {"all"}, {"apiserver"}),
    (["certs", "renew", "all", "--c"], {"--cert-dir", "--config"}, {"--kubeconfig"}),
    (["init", "phase", "upload-config", ""], {"kubeadm", "kubelet"}, {"preflight"}),
    (["upgrade", "apply", "--f"], {"--force"}, {"--patches"}),
]


PATHS = [
    (["init", "--config", ""], {"made.yaml", "kept"}, set()),
    (["init", "--cert-dir", ""], {"kept"}, {"made.yaml"}),
    (["etcd", "snapshot", "verify", ""], {"made.yaml"}, {"save"}),
]
"""Completed in a directory with the file made.yaml and the directory kept."""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "made.yaml").touch()
    (tmp_path / "kept").mkdir()
    return tmp_path


@pytest.mark.parametrize("path", ["bash"], indirect=True)
@pytest.mark.parametrize(("words", "offered", "kept"), [*OFFERED, *PATHS])
def test_bash_offers_sub_commands_and_flags(path, directory, words, offered, kept):
    line = " ".join(f"'{word}'" for word in ["kubeadm", *words])
    program = (
        f'source "{path}"; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_kubeadm kubeadm "{words[-1]}" "{words[-2]}";'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, timeout=600, cwd=directory)
    found = set(done.stdout.split())
    assert (offered - found, kept & found) == (set(), set())


@pytest.mark.parametrize("path", ["bash"], indirect=True)
def test_bash_offers_files_where_the_script_offers_nothing(path):
    done = subprocess.run(["bash", "-c", f'source "{path}"; complete -p kubeadm'], capture_output=True, text=True, check=True, timeout=600)
    assert "-o default" in done.stdout


def test_zsh_offers_paths(scripts):
    offered = ('--config[kubeadm configuration file]:config:_files"', ":cert_dir:_files -/", '::file:_files"')
    assert [text for text in offered if text not in scripts["zsh"]] == []


@pytest.mark.parametrize("path", ["zsh"], indirect=True)
@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("certs", ["certificate-key", "check-expiration", "generate-csr", "renew"]),
        ("etcd_restore", ["phase", "files"]),
        ("etcd", ["status", "member", "snapshot", "restore"]),
        ("backup_restore", ["phase", "files"]),
        ("upgrade", ["apply", "diff", "node", "plan", "rollback", "status"]),
    ],
)
def test_zsh_offers_the_sub_commands_of_a_command_and_files_if_it_takes_one(path, command, offered):
    """With stand-ins for the functions of its completion system."""
    stubs = 'compdef() { print "$@" }; _describe() { print -l -- ${(P)2%%:*} }; _files() { print files }'
    program = f'{stubs}; source "{path}"; _shtab_kubeadm_{command}_commands'
    done = subprocess.run(["zsh", "-f", "-c", program], capture_output=True, text=True, check=True, timeout=600)
    [registered, *found] = done.stdout.splitlines()
    assert (registered, sorted(found)) == ("_shtab_kubeadm -N kubeadm", sorted(offered))


@pytest.mark.parametrize("path", ["fish"], indirect=True)
@pytest.mark.parametrize(
    ("words", "offered", "kept"),
    [
        *OFFERED,
        *PATHS[::2],
        (["etcd", "restore", ""], {"made.yaml", "phase"}, {"status"}),
        (["-v", "3", "version", "-o", ""], {"json", "yaml", "short"}, {"version"}),
    ],
)
def test_fish_offers_sub_commands_and_flags(path, directory, words, offered, kept):
    line = " ".join(["kubeadm", *words])
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "HOME": str(path.parent)},
        cwd=directory,
    )
    found = {text.split("\t")[0].rstrip("/") for text in done.stdout.splitlines()}
    assert (offered - found, kept & found) == (set(), set())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "shell not specified"),
        (["bash", "zsh"], "too many arguments. expected only the shell type"),
        (["tcsh"], 'unsupported shell type "tcsh", the supported shell types are [bash zsh fish]'),
    ],
)
def test_a_wrong_shell_is_refused(words, message):
    with pytest.raises(UsageError) as caught:
        completion.completion(parse(["completion", *words], program="kubewright"))
    assert caught.value.what == message
