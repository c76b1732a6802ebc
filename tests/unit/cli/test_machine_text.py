"""The text that commands which change machines print for events."""

from __future__ import annotations

from kubewright.base.events import Checked, Line, PhaseSkipped, PhaseStarted, Waiting, Warned
from kubewright.cli.printers.reporters import MachineText


def test_lines_have_topics_except_the_final_message(capsys):
    text = MachineText()
    text.emit(Line(topic="preflight", text="Running pre-flight checks"))
    text.emit(Line(topic="", text="This machine has joined"))
    text.emit(PhaseStarted(phase="preflight"))
    assert capsys.readouterr().out == "[preflight] Running pre-flight checks\n\nThis machine has joined\n"


def test_a_skipped_phase_is_reported_unless_the_reason_is_obvious(capsys):
    text = MachineText(silent=("a worker",))
    text.emit(PhaseSkipped(phase="control-plane-prepare/certs", reason="a worker"))
    text.emit(PhaseSkipped(phase="control-plane-prepare/certs", reason="named by --skip-phases"))
    text.emit(PhaseSkipped(phase="preflight", reason="named by --skip-phases"))
    assert capsys.readouterr().out == (
        "[control-plane-prepare] Skipping certs: named by --skip-phases\n[preflight] Skipping phase: named by --skip-phases\n"
    )


def test_warnings_go_to_stderr(capsys):
    text = MachineText()
    text.emit(Warned(text="careful"))
    text.emit(Checked(check="Swap", text="swap is on"))
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "warning: careful\n\t[WARNING Swap]: swap is on\n")


def test_waits_are_not_part_of_the_result(capsys):
    MachineText().emit(Waiting(what="the kubelet", reason="it starts", elapsed=1.0))
    assert capsys.readouterr().out == ""
