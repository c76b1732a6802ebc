"""Paths that begin with `~`."""

from __future__ import annotations

from pathlib import Path


def expanded(text: str | Path) -> Path:
    """Return a path with the home directory for a leading `~`; as in shells, `~` stays if no such directory is known.

    That is so for users without an account, as in containers with any user id, and for names that no user has.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
