"""A registry with one image, for the container runtimes of machines (OCI distribution-spec v1.1: pulling only)."""

from __future__ import annotations

import hashlib
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from kubewright.machines.oci import MANIFEST


class Registry:
    """Serves the image of an archive under every name and tag, on all addresses: machines reach the host at that of their bridge."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            files = {entry.name: tar.extractfile(entry) for entry in tar if entry.isreg()}
            self._blobs = {name.rpartition("/")[2]: file.read() for name, file in files.items() if name.startswith("blobs/") and file}
            index = files["index.json"]
            assert index is not None
            self._manifest = json.loads(index.read())["manifests"][0]["digest"].removeprefix("sha256:")

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Registry:
        blobs, manifest = self._blobs, self._manifest

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def _answer(self, *, body: bool) -> None:
                _, _, reference = self.path.partition("?")[0].rpartition("/")
                is_manifest = "/manifests/" in self.path
                digest = reference.removeprefix("sha256:") if ":" in reference else manifest
                found = blobs.get(digest) if is_manifest or "/blobs/" in self.path else b"{}"
                self.send_response(200 if found is not None else 404)
                self.send_header("content-type", MANIFEST if is_manifest else "application/octet-stream")
                self.send_header("content-length", str(len(found or b"")))
                self.send_header("docker-content-digest", f"sha256:{hashlib.sha256(found or b'').hexdigest()}")
                self.end_headers()
                if body and found:
                    self.wfile.write(found)

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
