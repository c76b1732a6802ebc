"""What machines see of the host to run kubewright: our virtual environment and our sources, read only.

Their places do not depend on the host's: a clone may lie below /tmp or /root, which machines have of their own.
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
"""Places in a machine, and the directories of the host that it sees there."""
PYTHON: Final = f"{_PYTHON}/bin/python"
"""Our interpreter, as a machine calls it."""
COMMAND: Final = "/usr/local/bin/kubewright"
"""Where a machine that is used by hand has the command."""
LAUNCHER: Final = f"""\
#!/bin/sh
PYTHONPATH={_SOURCE} PYTHONDONTWRITEBYTECODE=1 exec {PYTHON} -m kubewright "$@"
"""
"""What lies there."""
ENVIRONMENT: Final[Mapping[str, str]] = {"PYTHONPATH": _SOURCE, "PYTHONDONTWRITEBYTECODE": "1"}
"""With which it finds kubewright."""
