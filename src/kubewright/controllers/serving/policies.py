"""The policy in force: a file that is read again when it changes. A changed file that is wrong changes nothing.

A policy comes into force together with its open sources: one whose sources cannot be opened is wrong too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import PurePosixPath

from kubewright.apis import node_approval
from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.errors import DocumentError, KubewrightError
from kubewright.controllers.authorities import ReadFile
from kubewright.controllers.serving.sources.asking import Tools
from kubewright.controllers.serving.sources.fetching import Fetcher

_log = logging.getLogger(__name__)


class PolicyFile:
    """A NodeApprovalPolicy in a file.

    made ── load() ──> in force ── refresh(), every second ──> in force: the newest valid content ── close() ──> closed
    """

    def __init__(self, path: PurePosixPath, *, read: ReadFile, tools: Tools | None = None) -> None:
        self._path = path
        self._read = read
        self._tools = tools or Tools(read=read)
        self._fetcher: Fetcher | None = None
        self._replaced: list[Fetcher] = []
        self._seen: bytes | None = None
        self._policy: NodeApprovalPolicy | None = None
        self._readers: list[Callable[[], None]] = []
        self.problem = ""
        """Why the present content of the file is not in force; '' if it is."""

    @property
    def current(self) -> NodeApprovalPolicy:
        """The policy in force. `load` comes first."""
        assert self._policy is not None
        return self._policy

    @property
    def sources(self) -> Fetcher:
        """The open sources of the policy in force."""
        assert self._fetcher is not None
        return self._fetcher

    def subscribe(self, reader: Callable[[], None]) -> None:
        """Call a function after each change of the policy in force."""
        self._readers.append(reader)

    def load(self) -> None:
        """Read the file for the first time.

        Raises DocumentError, ValidationError with every field that is wrong, or the error of a source that cannot be opened.
        """
        self._seen = self._content()
        self._policy = node_approval.read(self._seen, source=str(self._path))
        self._fetcher = Fetcher(self._policy, self._tools)
        for notice in notices(self._policy):
            _log.warning("%s: %s", self._path, notice)

    def refresh(self) -> None:
        """Read the file again if it has changed. What is wrong with it is logged once, and the policy in force stays."""
        try:
            content = self._content()
            if content == self._seen:
                self.problem = ""
                return
            changed = node_approval.read(content, source=str(self._path))
            fetcher = Fetcher(changed, self._tools)
        except KubewrightError as error:
            if str(error) != self.problem:
                _log.error("policy version %s stays in force: %s", self.current.version, error)
            self.problem = str(error)
            return
        self._replaced.append(self.sources)
        self._seen, self._policy, self._fetcher, self.problem = content, changed, fetcher, ""
        _log.info("%s: policy version %s is in force", self._path, changed.version)
        for reader in self._readers:
            reader()

    async def close_replaced(self) -> None:
        """Close the sources of policies that are no longer in force."""
        while self._replaced:
            await self._replaced.pop().close()

    async def close(self) -> None:
        """Close all sources. Idempotent."""
        await self.close_replaced()
        await self.sources.close()

    def _content(self) -> bytes:
        content = self._read(self._path)
        if content is None:
            raise DocumentError(f"{self._path} does not exist", remedy="check --node-policy")
        return content


def notices(policy: NodeApprovalPolicy) -> list[str]:
    """Say what weakens a policy."""
    if not policy.trust_reported:
        return []
    return ["nodes may have every address that they report within nodeCIDRs: a node can take the address of one that is not known yet"]
