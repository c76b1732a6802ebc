"""The keys with which bootstrap tokens were used, in a ConfigMap, which outlives deleted requests and restarts.

Only the leader writes it, so it is read once. A token is stored before its first request is approved, or when a person
has approved it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kubewright.base.clock import rfc3339
from kubewright.base.errors import APIError, Conflict, NotFound
from kubewright.base.messages import short
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.daemons.controller import NotNow
from kubewright.kube.resources import CONFIG_MAP
from kubewright.manifests import node_policy, pods

_log = logging.getLogger(__name__)

MOST: Final = 4000
"""How many tokens are stored, the latest ones: at most some 600 KiB of the 1 MiB that an object may have."""
_ATTEMPTS: Final = 3
_ENTRY: Final = Pattern(r"(\S+) ([0-9a-f]{64}) (\S*)")


@dataclass(frozen=True, kw_only=True)
class Use:
    """The first use of a token: the digest of the key, and the beginning of the node's name."""

    at: str
    key: bytes
    node: str

    @classmethod
    def of(cls, key: bytes, node: str, *, now: datetime) -> Use:
        """Return a use at this time."""
        return cls(at=rfc3339(now), key=key, node=short(node))

    @property
    def text(self) -> str:
        """The stored form: time, digest of the key, and node."""
        return f"{self.at} {self.key.hex()} {self.node}"


Uses = Mapping[str, Use]
"""Uses by the id of the token."""


def read(found: Object) -> dict[str, Use]:
    """Return the uses in the ConfigMap, without malformed entries."""
    entries = {str(name): _ENTRY.fullmatch(str(text)) for name, text in (found.get("data") or {}).items()}
    return {name: Use(at=match[1], key=bytes.fromhex(match[2]), node=match[3]) for name, match in entries.items() if match}


def with_uses(found: Object, uses: Uses) -> Object:
    """Return the ConfigMap with further uses, and without the oldest ones if there are too many. The first use of a token stays."""
    known = {**uses, **read(found)}
    latest = sorted(known.items(), key=lambda one: one[1].at)[-MOST:]
    return {**found, "data": {name: use.text for name, use in sorted(latest)}}


class UsedTokens:
    """The uses of tokens in a cluster.

    made ── load() ──> known ── record() ──> stored, one write for all that wait
    """

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api
        self._known: dict[str, Use] | None = None
        self._waiting: dict[str, Use] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> Uses:
        """Return what is stored; it is read once. Raises NotNow if it cannot be read."""
        if self._known is None:
            async with self._writing:
                if self._known is None:
                    self._known = read(await self._read())
        return self._known

    async def record(self, token: str, use: Use) -> None:
        """Store the first use of a token. Raises NotNow if that fails, or if another key has used it."""
        known = await self.load()
        if token not in known:
            self._waiting.setdefault(token, use)
            async with self._writing:
                if token not in known:  # otherwise the write for another caller has stored it
                    self._waiting.setdefault(token, use)  # again: that write may have failed
                    await self._store()
        stored = known.get(token)
        if stored is None:
            raise NotNow(
                f"{_NAME} has so many newer entries that the use of a bootstrap token is not stored: see the clock of this machine"
            )
        if stored.key != use.key:
            raise NotNow("the bootstrap token was used with another key meanwhile", quiet=True)

    async def _store(self) -> None:
        assert self._known is not None
        waiting, self._waiting = self._waiting, {}
        for _ in range(_ATTEMPTS):
            try:
                self._known.update(read(await self._api.update(with_uses(await self._read(), waiting))))
            except Conflict:
                continue
            except APIError as error:
                raise _unavailable(error) from error
            return
        raise NotNow(f"another writer keeps changing {_NAME}")

    async def _read(self) -> Object:
        try:
            return await self._api.get(CONFIG_MAP, node_policy.USED_TOKENS, pods.NAMESPACE)
        except NotFound as error:
            _log.error(
                "%s does not exist, so no token is accepted: create it as `kubewright controllers manifest deployment` prints it", _NAME
            )
            raise _unavailable(error) from error
        except APIError as error:
            raise _unavailable(error) from error


_NAME: Final = f"the ConfigMap {pods.NAMESPACE}/{node_policy.USED_TOKENS}"


def _unavailable(error: APIError) -> NotNow:
    return NotNow(f"it is not known which tokens were used: {error.what}")
