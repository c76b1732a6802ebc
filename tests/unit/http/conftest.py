from __future__ import annotations

from http_fixtures import authority, ca_pem, clean_environment, client_pair, make_server, other_client_pair, server_pair, server_tls

from unix_sockets import short_path

__all__ = [
    "authority",
    "ca_pem",
    "clean_environment",
    "client_pair",
    "make_server",
    "other_client_pair",
    "server_pair",
    "server_tls",
    "short_path",
]
