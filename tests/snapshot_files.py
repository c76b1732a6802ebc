"""Synthetic snapshots of etcd: files with the beginning and the end of a real one, and nothing in between."""

from __future__ import annotations

import hashlib


def database(pages: int) -> bytes:
    """Return this number of pages that begin like a bbolt database."""
    return (b"\0" * 16 + 0xED0CDAED.to_bytes(4, "little")).ljust(4096 * pages, b"\7")


def snapshot(content: bytes) -> bytes:
    """Return a database followed by its SHA-256."""
    return content + hashlib.sha256(content).digest()
