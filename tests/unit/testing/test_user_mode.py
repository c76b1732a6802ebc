"""Linux in user mode, in which virtual hosts run where KVM does not work: its configuration and its command."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.soak import user_mode


def test_fragment_names_each_option_once() -> None:
    names = [line.removeprefix("# ").split("=")[0].split()[0] for line in user_mode.fragment().splitlines()]
    assert len(names) > 200
    assert len(set(names)) == len(names)
    assert {"CONFIG_CPUSETS", "CONFIG_SMP", "CONFIG_NF_TABLES", "CONFIG_MODULES"} <= set(names)


def test_configuration_lacks_what_is_off_or_unknown() -> None:
    assert user_mode.missing(user_mode.fragment()) == []
    changed = user_mode.fragment().replace("CONFIG_CPUSETS=y\n", "# CONFIG_CPUSETS is not set\n").replace("NR_CPUS=4", "NR_CPUS=64")
    assert user_mode.missing(changed) == ["CONFIG_CPUSETS=y", "CONFIG_NR_CPUS=4"]


def test_configuration_may_not_know_what_should_be_off() -> None:
    without = user_mode.fragment().replace("# CONFIG_MODULES is not set\n", "")
    assert user_mode.missing(without) == []
    assert user_mode.missing(f"{without}CONFIG_MODULES=y\n") == ["# CONFIG_MODULES is not set"]


def test_command_changes_no_disk() -> None:
    argv = user_mode.command(Path("/k/linux"), [Path("/d/one"), Path("/d/two")], Path("/run"), serial=7, memory=512)
    assert [word for word in argv if word.startswith("ubd")] == ["ubd0=/run/cow-0,/d/one", "ubd1=/run/cow-1,/d/two"]
    assert {"mem=512M", "ncpus=2", "ssl0=fd:7", "root=/dev/ubda"} <= set(argv)
