"""For `make flaky`: let Python change threads as often as it can, so that races between threads show."""

from __future__ import annotations

import sys

sys.setswitchinterval(1e-6)
