"""A registry of images: the pull part of the distribution API (OCI), on loopback, with images that are generated here."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer_of(files: Mapping[str, bytes]) -> bytes:
    """A tar archive, the same bytes for the same files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


class Registry:
    """Has images of one layer under names such as `x/pause`, each with one tag. `asked` are the paths of all requests."""

    def __init__(self) -> None:
        self.blobs: dict[str, tuple[str, bytes]] = {}
        self.tags: dict[tuple[str, str], str] = {}
        self.asked: list[str] = []
        self.refusal: int | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, name: str, tag: str, files: Mapping[str, bytes], *, entrypoint: tuple[str, ...] = ()) -> str:
        """Add an image, and return its digest."""
        layer = layer_of(files)
        packed = gzip.compress(layer, mtime=0)
        config = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint)},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }
        described = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._put(CONFIG, _json(config)),
            "layers": [self._put(LAYER, packed)],
        }
        self.tags[name, tag] = self._put(MANIFEST, _json(described))["digest"]
        return self.tags[name, tag]

    def _put(self, kind: str, content: bytes) -> dict[str, Any]:
        self.blobs[digest(content)] = (kind, content)
        return {"mediaType": kind, "digest": digest(content), "size": len(content)}

    def find(self, path: str) -> tuple[str, bytes] | None:
        """The type and the bytes at a path such as /v2/x/pause/manifests/3.10."""
        if path in {"/v2", "/v2/"}:
            return "application/json", b"{}"
        name, _, reference = path.removeprefix("/v2/").partition("/manifests/")
        if reference:
            return self.blobs.get(self.tags.get((name, reference), reference))
        return self.blobs.get(path.rpartition("/blobs/")[2])


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.registry.asked.append(path)
        found = self.registry.find(path)
        code = self.registry.refusal or (200 if found else 404)
        kind, content = found if found and code == 200 else ("application/json", b'{"errors": []}')
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Docker-Content-Digest", digest(content))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve it on a free port, without TLS."""
    handler = type("Handler", (_Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", registry.port), handler) as server:
        registry.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join(10)


def program_image(program: Path) -> dict[str, bytes]:
    """The files of an image that contains one program, as /pause."""
    return {"pause": program.read_bytes()}
