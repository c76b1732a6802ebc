from __future__ import annotations

import sys
from pathlib import Path

# The scripted server and its fixtures are shared with the tests of http.
sys.path.insert(0, str(Path(__file__).parents[1] / "http"))
