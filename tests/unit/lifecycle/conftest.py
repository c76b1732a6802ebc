import pytest
from init_kit import Box


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path / "machine")
