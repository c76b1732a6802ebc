"""What machines see of the host to run kubewright: our virtual environment and our sources, read-only.

Their paths in machines do not depend on those of the host: a clone may lie below /tmp or /root, and machines have
their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PYTHON: Final = "/opt/kubewright/python"
_SOURCE: Final = "/opt/kubewright/source"
SOURCE: Final = Path(__file__).parents[1] / "src"
"""Our sources on the host."""
SHARED: Final[Mapping[str, Path]] = {_PYTHON: Path(sys.prefix), _SOURCE: SOURCE}
"""Paths in a machine, and the directories of the host that are mounted there."""
PYTHON: Final = f"{_PYTHON}/bin/python"
"""Our interpreter, as called in a machine."""
COMMAND: Final = "/usr/local/bin/kubewright"
"""Where a machine for manual use has the command."""
ENVIRONMENT: Final[Mapping[str, str]] = {"PYTHONPATH": _SOURCE, "PYTHONDONTWRITEBYTECODE": "1"}
"""With these arguments an interpreter finds kubewright and writes nothing to our sources."""
LAUNCHER: Final = f"""\
#!{PYTHON}
import os, sys

sys.dont_write_bytecode = True
sys.path[0] = "{_SOURCE}"
os.environ.update({dict(ENVIRONMENT)})

from kubewright.cli.main import run

run()
"""
"""A script of the interpreter, like those that installers make, so that the program knows the name by which systemd can call it."""
