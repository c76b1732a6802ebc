"""The API server that a joining machine uses inside an arena: objects by path; everything else is not found.

It checks no permissions and stores nothing. Real API servers are in tests/machines; here only files are compared.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

ADDRESS: Final = "10.98.0.12"
PORT: Final = 6444
SERVER: Final = f"https://{ADDRESS}:{PORT}"
TOKEN: Final = "abcdef.0123456789abcdef"
KEY: Final = "ab" * 32
_NOT_FOUND: Final = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


def cluster(documents: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return what is served for a cluster with these documents (`kubeadm-config`, …), and the pin of its CA."""
    import trustme

    from kubewright.base.clock import SystemClock
    from kubewright.base.randomness import SystemRandom
    from kubewright.lifecycle.steps import stand_ins
    from kubewright.manifests import configmaps
    from kubewright.pki import pins
    from kubewright.pki.encryption import sealing
    from kubewright.tokens import cluster_info, strings

    shared = stand_ins.shared_certificates(KEY, clock=SystemClock(), random=SystemRandom())
    names = ("ca.crt", "ca.key")
    ca, key = (sealing.unseal(base64.b64decode(shared["data"][name]), sealing.parse_key(KEY), name=name) for name in names)
    served = trustme.CA.from_pem(cert_bytes=ca, private_key_bytes=key).issue_cert(ADDRESS)
    plain, token = cluster_info.config_map(server=SERVER, ca_pem=ca), strings.parse(TOKEN)
    signature = cluster_info.detached_signature(plain["data"]["kubeconfig"], token)  # type: ignore[index]
    info = cluster_info.config_map(server=SERVER, ca_pem=ca, signatures={f"jws-kubeconfig-{token.id}": signature})
    maps = (configmaps.config_map(name, {data: text}) for name, (data, text) in _split(documents).items())
    objects = {_path(one): one for one in (*maps, info, shared)}
    return {"pem": served.private_key_and_cert_chain_pem.bytes().decode(), "objects": objects}, pins.pin(ca)


_DATA: Final = {"kubeadm-config": "ClusterConfiguration", "kubelet-config": "kubelet", "kube-proxy": "config.conf"}


def _split(documents: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {name: (_DATA[name], text) for name, text in documents.items()}


def _path(body: Mapping[str, Any]) -> str:
    about = body["metadata"]
    return f"/api/v1/namespaces/{about['namespace']}/{body['kind'].lower()}s/{about['name']}"


@contextmanager
def serving(cluster: Mapping[str, Any]) -> Iterator[None]:
    """Serve a cluster, unless there is none."""
    if not cluster:
        yield
        return
    pair = Path("/run/arena-api.pem")
    pair.write_text(cluster["pem"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = cluster["objects"].get(self.path.partition("?")[0])
            body = json.dumps(found or _NOT_FOUND).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((ADDRESS, PORT), Answers)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
