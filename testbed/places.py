"""Where the testbed stores beds, and the locks of those that are up; what is made once is in the cache of `kubewright.machines`."""

from __future__ import annotations

import os
from pathlib import Path


def beds() -> Path:
    """Return the directory of all beds that are up, or were when they were killed: a directory per machine in one per bed."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "kubewright" / "testbed"


def locks() -> Path:
    """Return the directory of the locks between processes of this host: one per bed."""
    return Path("/run/kubewright-testbed")
