import sys
from pathlib import Path

# The scripted server is shared with the tests of http.
sys.path.insert(0, str(Path(__file__).parents[1] / "http"))

import pytest
from init_kit import Box


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path / "machine")
