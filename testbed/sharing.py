"""What machines of tests see of the host to run kubewright, and the command that people call in them."""

from __future__ import annotations

from typing import Final

from kubewright.machines import program

_OWN = program.from_environment()
SHARED: Final = _OWN.shared
"""Paths in a machine, and the directories of the host that are mounted there: our virtual environment and our sources."""
PYTHON: Final = _OWN.argv[0]
"""Our interpreter, as called in a machine."""
COMMAND: Final = "/usr/local/bin/kubewright"
"""Where a machine for manual use has the command."""
ENVIRONMENT: Final = _OWN.environment
LAUNCHER: Final = f"""\
#!{PYTHON}
import os, sys

sys.dont_write_bytecode = True
sys.path[0] = "{ENVIRONMENT["PYTHONPATH"]}"
os.environ.update({dict(ENVIRONMENT)})

from kubewright.cli.main import run

run()
"""
"""A script of the interpreter, like those that installers make, so that the program knows the name by which systemd can call it."""
