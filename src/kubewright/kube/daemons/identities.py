"""Credentials that change while a daemon runs: files are read again each minute, and new credentials are used at once.

client-go reads a token file again each minute, and a certificate file when it changes (client-go v0.36: transport). Here
this also applies to credentials that are embedded in a kubeconfig. Credentials that cannot be read, or a key that is not
the certificate's because only one of the two files is new yet, change nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Final, Protocol

from kubewright.base.errors import KubewrightError, UsageError
from kubewright.kube.credentials import Access, Identity
from kubewright.kube.kubeconfigs import ReadFile, load_access

_log = logging.getLogger(__name__)

REREAD: Final = 60.0
"""Seconds between two reads."""


class Client(Protocol):
    """A client whose identity can be replaced: `AsyncKubeClient`."""

    async def set_identity(self, identity: Identity) -> None:
        """Use another identity from now on."""
        ...


class SyncClient(Protocol):
    """A client that is not asynchronous, whose identity can be replaced: `KubeClient`."""

    def set_identity(self, identity: Identity) -> None:
        """Use another identity from now on."""
        ...


async def keep(clients: Sequence[Client], known: Access, *, source: PurePosixPath, read: Callable[[], Identity]) -> None:
    """Pass each new identity to the clients, until cancelled.

    `known` is the access that they have, and `read` reads the identity in `source` again. If it raises an error of our
    tree, the old one is kept, and the error is logged once.
    """
    trouble = ""
    while True:
        await asyncio.sleep(REREAD)
        try:
            found = read()
            if found == known.identity:
                trouble = ""
                continue
            fresh = known.as_identity(found)
            fresh.context()
        except KubewrightError as error:
            if str(error) != trouble:
                _log.warning("the old credentials of %s are kept: %s", source, error)
            trouble = str(error)
            continue
        for client in clients:
            await client.set_identity(found)
        known, trouble = fresh, ""
        _log.info("the credentials of %s were read again", source)


async def keep_kubeconfig(clients: Sequence[Client], known: Access, path: PurePosixPath, *, read: ReadFile) -> None:
    """Keep the credentials of a kubeconfig. One that is for another cluster by now, or that is used in another way, changes nothing."""
    await keep(clients, known, source=path, read=lambda: _read_again(known, path, read=read).identity)


class Renewal:
    """Gives the credentials of a kubeconfig to a client that is not asynchronous, whenever this is called and they have changed."""

    def __init__(self, client: SyncClient, known: Access, path: PurePosixPath, *, read: ReadFile) -> None:
        self._client = client
        self._known = known
        self._path = path
        self._read = read

    def __call__(self) -> None:
        """Read the file. Raises an error of our tree if it cannot be used; then the client keeps what it has."""
        found = _read_again(self._known, self._path, read=self._read)
        if found != self._known:
            found.context()
            self._client.set_identity(found.identity)
            self._known = found


def _read_again(known: Access, path: PurePosixPath, *, read: ReadFile) -> Access:
    found = load_access(path, read=read)
    if found.as_identity(known.identity) != known:
        raise UsageError(f"{path} is for another cluster by now", remedy="restart this process to use it")
    return found
