"""The lines about an error on stderr: those of kubeadm's commands, which scripts look for, and those of our own."""

from __future__ import annotations

import pytest

from kubewright.base.checks import CheckResult, Finding, Report
from kubewright.base.errors import HostError, Interrupted, KubewrightError, PreflightFailed
from kubewright.cli import main as cli
from kubewright.cli.rows.commands import TABLE
from kubewright.cli.rows.model import KUBEADM

HINT = "hint: fix it"
VERBOSER = "To see the stack trace of this error execute with --v=5 or higher"


@pytest.fixture
def told(capsys, monkeypatch):
    """Run a command whose handler raises an error; return the exit code and the lines on stderr."""

    def run(line: str, error: KubewrightError) -> tuple[int, list[str]]:
        def handler(_: object) -> int:
            raise error

        monkeypatch.setattr(cli, "imported", lambda _: handler)
        monkeypatch.setattr("sys.argv", ["kubewright"])
        code = cli.main(line.split())
        return code, capsys.readouterr().err.splitlines()

    return run


def failed(phase: str) -> HostError:
    error = HostError("no luck", detail="at all", remedy="fix it")
    error.add_note(f"error execution phase {phase}")
    return error


@pytest.mark.parametrize(
    "line", ["init", "join", "reset", "upgrade apply v1.36.3", "upgrade node", "init phase certs ca", "reset phase preflight"]
)
def test_an_error_of_a_workflow_names_the_phase_as_kubeadm_does(line, told):
    lines = ["error: error execution phase certs/ca: no luck", "  at all", HINT, VERBOSER]
    assert told(line, failed("certs/ca")) == (1, lines)


def test_an_error_outside_a_phase_has_no_phase(told):
    assert told("init", HostError("no luck")) == (1, ["error: no luck", VERBOSER])


@pytest.mark.parametrize("line", ["certs renew all", "config validate", "token list"])
def test_commands_without_phases_name_none(line, told):
    assert told(line, failed("ca")) == (1, ["error: no luck", "  at all", HINT, VERBOSER])


def test_our_own_commands_have_neither_line(told):
    assert told("node leave", failed("preflight")) == (1, ["error: no luck", "  at all", HINT])


def test_with_verbosity_5_the_stack_replaces_the_line_about_it(told):
    lines = told("init -v 5", failed("certs"))[1]
    assert VERBOSER not in lines
    assert [line for line in lines if line.startswith("Traceback")] == ["Traceback (most recent call last):"]


def test_an_interruption_names_its_phase_once_and_has_no_stack(told):
    stop = Interrupted("interrupted in phase certs", number=2)
    stop.add_note("error execution phase certs")
    assert told("init", stop) == (130, ["error: interrupted in phase certs"])


def report() -> Report:
    findings = [Finding(text="2 images cannot be pulled:\none", remedy="look"), Finding(text="another", remedy="")]
    return Report(results=[CheckResult(name="ImagePull", findings=findings)])


def test_failed_checks_are_listed_in_the_lines_of_kubeadm(told):
    with pytest.raises(PreflightFailed) as caught:
        report().require_passed()
    caught.value.add_note("error execution phase preflight")
    assert told("init", caught.value) == (
        1,
        [
            "[preflight] Some fatal errors occurred:",
            "\t[ERROR ImagePull]: 2 images cannot be pulled:",
            "\tone; look",
            "\t[ERROR ImagePull]: another",
            "[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`",
            "error: error execution phase preflight: preflight checks failed",
            VERBOSER,
        ],
    )


def test_failed_checks_of_our_own_commands_are_details_of_the_error(told):
    with pytest.raises(PreflightFailed) as caught:
        report().require_passed()
    code, lines = told("preflight init", caught.value)
    assert (code, lines[:2]) == (4, ["error: preflight checks failed", "  [ERROR ImagePull]: 2 images cannot be pulled:"])


def test_every_command_with_phases_of_kubeadm_is_tested():
    rows = (row for row in TABLE.every() if row.exit_scheme == KUBEADM and row.workflow is not None and row.workflow.phases)
    assert {row.path.partition(" phase")[0] for row in rows} == {"init", "join", "reset", "upgrade apply", "upgrade node"}
