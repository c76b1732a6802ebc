"""The entry point: exit codes, streams, and what an error looks like."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kubewright
from kubewright.base import events
from kubewright.base.errors import CheckFailed, Interrupted, Locked, Stopped, ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.level import KUBERNETES
from kubewright.cli import main as entry
from kubewright.cli.printers.reporters import JsonLines, KubeadmText, PlainLines

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.fixture(autouse=True)
def called_by_its_own_name(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubewright"])


def test_help_is_printed_on_stdout_and_succeeds(capsys):
    assert entry.main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert "Usage:\n  kubewright [command]" in out
    assert err == ""


def test_no_arguments_show_help_and_succeed(capsys):
    assert entry.main([]) == 0
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(("argv", "code"), [(["local"], 2), (["token"], 1), (["init", "phase", "certs"], 1)])
def test_a_group_without_a_sub_command_prints_help_and_fails(argv, code, capsys):
    assert entry.main(argv) == code
    out, err = capsys.readouterr()
    assert "Commands:" in out
    assert "missing sub-command" in err


def test_a_usage_error_is_one_line_with_a_hint(capsys):
    assert entry.main(["up", "--nodse", "3"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == 'error: unknown flag: --nodse\nhint: did you mean "--nodes"?\n'


@pytest.mark.parametrize(
    ("error", "own", "kubeadms"),
    [
        (ValidationError("bad", [FieldError(path=FieldPath("a.b"), type=FieldErrorType.REQUIRED)]), 3, 1),
        (CheckFailed("no"), 4, 1),
        (Locked("busy"), 75, 1),
        (Interrupted("stopped"), 130, 130),
    ],
)
def test_exit_codes_depend_on_the_error_and_are_one_for_commands_of_kubeadm(error, own, kubeadms, monkeypatch, capsys):
    def fail(_):
        raise error

    monkeypatch.setattr(entry, "imported", lambda _: fail)
    assert entry.main(["local", "status"]) == own
    assert entry.main(["version"]) == kubeadms
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "code"), [(["local", "status", "--nonsense"], 2), (["token", "generate", "--nonsense"], 1), (["token", "x"], 1)]
)
def test_usage_errors_follow_the_scheme_of_the_command(argv, code, capsys):
    assert entry.main(argv) == code
    assert capsys.readouterr().err.startswith("error: unknown ")


def test_an_error_outside_of_the_tree_is_a_bug_without_a_traceback(monkeypatch, capsys):
    def fail(_):
        raise RuntimeError("surprise")

    monkeypatch.setattr(entry, "imported", lambda _: fail)
    assert entry.main(["version"]) == 70
    err = capsys.readouterr().err
    assert "internal error: RuntimeError: surprise" in err
    assert "Traceback" not in err
    assert entry.main(["-v", "5", "version"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_signal_reported_as_an_interpreter_error_is_a_signal(monkeypatch, capsys):
    def fail(_):
        raise SystemError("a call returned a result with an exception set") from Stopped(signal.SIGHUP)

    monkeypatch.setattr(entry, "imported", lambda _: fail)
    assert entry.main(["version"]) == 128 + signal.SIGHUP
    assert capsys.readouterr().err.startswith("error: interrupted by SIGHUP")


def test_output_uses_the_name_by_which_the_program_was_called(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["/opt/bin/kubeadm"])
    assert entry.main(["token", "--help"]) == 0
    assert "  kubeadm token [command]\n" in capsys.readouterr().out


@pytest.mark.parametrize("called", ["kubewright", "kw"])
def test_the_version_of_the_program_itself_is_a_flag_too(called, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [f"/usr/bin/{called}"])
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr() == (f"{called} {kubewright.__version__} (Kubernetes {KUBERNETES})\n", "")
    assert entry.main(["--help"]) == 0
    assert "  --version" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--version"], ["--version", "version"], ["--version=true", "token", "generate"]])
def test_kubeadm_has_no_such_flag(words, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubeadm"])
    assert entry.main(words) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", "error: unknown flag: --version")
    assert entry.main(["--help"]) == 0
    assert "--version" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--version", "up"], ["up", "--version"], ["token", "--version"]])
def test_commands_have_no_version_of_their_own(words, capsys):
    assert entry.main(words) in {1, 2}
    assert capsys.readouterr().err.startswith("error: unknown flag: --version\n")


def test_every_reporter_uses_the_name_by_which_the_program_was_called(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/opt/bin/kubeadm"])
    told = [
        events.Line(topic="", text="first `kubewright join a`"),
        events.Line(topic="x", text="then `kubewright init`"),
        events.Warned(text="see `kubewright certs`"),
        events.Checked(check="A", text="see `kubewright reset`"),
    ]
    out, err, lines, plain = io.StringIO(), io.StringIO(), io.StringIO(), io.StringIO()
    for reporter in (KubeadmText(out=out, err=err), JsonLines(err=lines), PlainLines(err=plain)):
        for event in told:
            reporter.emit(event)
    shown = [stream.getvalue() for stream in (out, err, lines, plain)]
    assert [text.count("kubeadm") for text in shown] == [2, 2, 4, 1]
    assert [text.count("kubewright") for text in shown] == [0, 0, 0, 0]


def test_ctrl_c_exits_130(monkeypatch, capsys):
    def fail(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "imported", lambda _: fail)
    assert entry.main(["version"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_generated_tokens_differ_and_are_valid(capsys):
    from kubewright.tokens import is_valid

    lines = [(entry.main(["token", "generate"]), capsys.readouterr().out.strip()) for _ in range(5)]
    assert {code for code, _ in lines} == {0}
    assert len({token for _, token in lines}) == 5
    assert all(is_valid(token) for _, token in lines)


@pytest.mark.parametrize("words", [["kubeconfig"], ["alpha"], ["--", "version"], ["", "-"]])
def test_some_groups_show_their_help_and_succeed(words, capsys):
    assert entry.main(words) == 0
    out, err = capsys.readouterr()
    assert ("Usage:" in out, err) == (True, "")


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["help"], "kubewright [command]"),
        (["help", "certs"], "kubewright certs [command]"),
        (["help", "certs", "nonsense"], "kubewright certs [command]"),
        (["help", "init", "phase", "certs", "ca"], "kubewright init phase certs ca [flags]"),
        (["help", "certificates", "renew"], "kubewright certs renew [command]"),
        (["--help", "certs"], "kubewright [command]"),
        (["certs", "-h", "renew"], "kubewright certs [command]"),
        (["certs", "nonsense", "--help"], "kubewright certs [command]"),
    ],
)
def test_help_can_be_requested_in_many_ways(words, usage, capsys):
    assert entry.main(words) == 0
    assert f"  {usage}\n" in capsys.readouterr().out


def test_help_about_an_unknown_command_goes_to_stderr_and_succeeds(capsys):
    assert entry.main(["help", "nonsense"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Unknown help topic [`nonsense`]\n")


def test_an_unknown_first_word_fails_even_with_help(capsys):
    assert entry.main(["nonsense", "--help"]) == 1
    assert capsys.readouterr().err.startswith('error: unknown command "nonsense" for "kubewright"\n')


def test_a_deprecated_flag_works_and_names_its_replacement(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(entry, "imported", lambda _: lambda parsed: seen.append(parsed.strings("apiserver-extra-args")) or 0)
    words = ["init", "phase", "control-plane", "apiserver", "--apiserver-extra-args", "v=4,a=b", "--apiserver-extra-args=c="]
    assert entry.main(words) == 0
    assert seen == [("v=4", "a=b", "c=")]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("Flag --apiserver-extra-args has been deprecated, use 'ClusterConfiguration.apiServer.extraArgs' instead")


def test_commands_in_errors_use_the_name_of_the_called_program(monkeypatch, capsys):
    def fail(_):
        raise CheckFailed("no", remedy="run `kubewright up` again; kubewright keeps its files in ~/.cache/kubewright")

    monkeypatch.setattr(entry, "imported", lambda _: fail)
    monkeypatch.setattr("sys.argv", ["/opt/bin/kubeadm"])
    assert entry.main(["version"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["error: no", "hint: run `kubeadm up` again; kubewright keeps its files in ~/.cache/kubewright"]


def called(command: str, *, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    """Call the program with a shell; `$K` is the program."""
    environment = {**os.environ, "K": f"{sys.executable} -m kubewright"}
    return subprocess.run(["sh", "-c", command], env=environment, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("<&-", 0), ("2>&-", 0), (">&- 2>&-", 0), ("<&- >&- 2>&-", 0)])
def test_streams_may_be_closed(closed, code):
    assert called(f"$K version -o short {closed}").returncode == code
    assert called(f"$K version --nonsense {closed}").returncode == 1


@pytest.fixture
def script(tmp_path):
    """The script that pip installs for the command that pyproject.toml declares."""
    module, _, function = tomllib.loads(PROJECT.read_text())["project"]["scripts"]["kubewright"].partition(":")
    written = tmp_path / "kubewright"
    written.write_text(f"import sys\nfrom {module} import {function}\nif __name__ == '__main__':\n    sys.exit({function}())\n")
    return str(written)


def test_the_installed_command_may_have_closed_streams(script):
    assert called(f"{sys.executable} {script} version -o short >&-").returncode == 0
    assert called(f"{sys.executable} {script} version -o short 2>&-").stdout == f"{KUBERNETES}\n"


def test_the_installed_command_is_ended_by_sigterm_like_by_ctrl_c(script, tmp_path):
    os.mkfifo(tmp_path / "config")
    process = subprocess.Popen([sys.executable, script, "config", "validate", "--config", str(tmp_path / "config")], stderr=subprocess.PIPE)
    with (tmp_path / "config").open("wb"):  # it waits for a reader, which then waits for our text
        process.terminate()
        _, err = process.communicate()
    assert (process.returncode, err.startswith(b"error: interrupted by SIGTERM\n")) == (143, True)


def test_files_never_get_the_number_of_a_closed_stream(tmp_path):
    script = (
        "from kubewright.cli import main; main.open_streams(); import sys; print(open('x', 'w').fileno()); print('lost', file=sys.stderr)"
    )
    found = called(f'{sys.executable} -c "{script}" 2>&-', cwd=str(tmp_path))
    assert (found.returncode, int(found.stdout) > 2) == (0, True)
    child = "import os, sys; from kubewright.cli import main; main.open_streams(); sys.exit(os.system('echo said >&2'))"
    assert called(f'{sys.executable} -c "{child}" 2>&-').returncode == 0
    assert (tmp_path / "x").read_text() == ""


def test_a_full_disk_below_the_output_is_reported_as_one():
    found = called("$K version >/dev/full")
    assert (found.returncode, "internal error" in found.stderr) == (1, False)
    assert found.stderr.startswith("error: the output cannot be written\n  No space left on device\nhint: ")


def test_a_current_directory_that_was_removed_is_reported(tmp_path):
    found = called("mkdir gone && cd gone && rmdir ../gone && $K local list --state-dir x", cwd=str(tmp_path))
    assert (found.returncode, found.stderr.startswith("error: the current directory does not exist any more\nhint: ")) == (1, True)
