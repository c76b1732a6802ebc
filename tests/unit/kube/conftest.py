from __future__ import annotations

import sys
from pathlib import Path

# The scripted server and its fixtures are shared with the tests of http.
sys.path.insert(0, str(Path(__file__).parents[1] / "http"))

from http_fixtures import authority, ca_pem, clean_environment, client_pair, make_server, other_client_pair, server_pair, server_tls

__all__ = ["authority", "ca_pem", "clean_environment", "client_pair", "make_server", "other_client_pair", "server_pair", "server_tls"]
