import sys
from pathlib import Path

# The scripted server and its fixtures are shared with the tests of http.
sys.path.insert(0, str(Path(__file__).parents[1] / "http"))

import pytest
from http_fixtures import authority, ca_pem, make_server, server_pair, server_tls
from init_kit import Box

__all__ = ["authority", "ca_pem", "make_server", "server_pair", "server_tls"]


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path / "machine")
