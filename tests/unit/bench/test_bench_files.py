"""The benchmark of commands that read and write files: every command has a target, and each pair becomes three figures."""

from __future__ import annotations

import stat

from tests.bench import files

FAST = "#!/bin/sh\nexit 0\n"


def test_every_command_has_a_target():
    assert files.COMMANDS.keys() == files.TARGETS.keys()


def test_all_commands_of_both_programs_are_timed_in_each_round(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_KUBERNETES", tmp_path / "kubernetes")
    program = tmp_path / "program"
    program.write_text(FAST)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    rows = files.measure(str(program), str(program), str(tmp_path / "kubeadm.yaml"), 2)
    assert len(rows) == 2
    assert all(row.keys() == {f"{key}{name}" for key in files.COMMANDS for name in ("Kubewright", "Kubeadm")} for row in rows)
    found = files._result(rows)
    assert [one.target for one in found.figures if one.target is not None] == list(files.TARGETS.values())
    assert len(found.figures) == 3 * len(files.COMMANDS)
