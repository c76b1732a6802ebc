"""A proxy in front of an API server that records what is sent; runs on a control plane with kubeadm's layout.

`recording_proxy.py PORT FILE`. It presents the API server's own certificate, requests client certificates, and names
the client to the API server as a front proxy does (X-Remote-User, X-Remote-Group); tokens are passed on. Each request
is a line of JSON in FILE. Needs only the standard library.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PKI = "/etc/kubernetes/pki"
OWN = {"connection", "transfer-encoding", "content-length", "host"}
LOCK = threading.Lock()


def upstream_context() -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=f"{PKI}/ca.crt")
    made.load_cert_chain(f"{PKI}/front-proxy-client.crt", f"{PKI}/front-proxy-client.key")
    return made


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    place = ""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        user, groups = self._who()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OWN}
        if user:
            headers["X-Remote-User"] = user
        self._write(
            {"user": user, "method": self.command, "path": self.path, "type": self.headers.get("content-type", ""), "body": _text(body)}
        )
        api = http.client.HTTPSConnection("cluster.test", 6443, context=upstream_context())
        try:
            api.putrequest(self.command, self.path, skip_accept_encoding=True)
            for name, value in headers.items():
                api.putheader(name, value)
            for group in groups:
                api.putheader("X-Remote-Group", group)
            if body:
                api.putheader("Content-Length", str(len(body)))
            api.endheaders(body or None)
            self._pass_on(api.getresponse())
        finally:
            api.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 (http.server's)

    def _who(self) -> tuple[str, list[str]]:
        certificate: Any = self.connection.getpeercert()  # type: ignore[attr-defined]
        names = [pair for row in (certificate or {}).get("subject", ()) for pair in row]
        user = next((value for key, value in names if key == "commonName"), "")
        return user, [value for key, value in names if key == "organizationName"]

    def _write(self, row: dict[str, str]) -> None:
        with LOCK, Path(self.place).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in OWN:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError, http.client.HTTPException):
            while piece := answer.read1(65536):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        return


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def main(port: int, place: str) -> None:
    Recorder.place = place
    server = ThreadingHTTPServer(("0.0.0.0", port), Recorder)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{PKI}/apiserver.crt", f"{PKI}/apiserver.key")
    context.load_verify_locations(f"{PKI}/ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
