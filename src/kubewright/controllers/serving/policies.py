"""The policy in force: a file or a ConfigMap that is read again when it changes.

An invalid new version of a policy is ignored. A policy comes into force together with its open sources: if they
cannot be opened, it counts as invalid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import PurePosixPath

from kubewright.apis import node_approval
from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.errors import DocumentError, KubewrightError
from kubewright.controllers.authorities import ReadFile
from kubewright.controllers.serving.locations import PolicyObject, content_of
from kubewright.controllers.serving.sources.fetching import Fetcher
from kubewright.controllers.serving.sources.interface import Tools
from kubewright.kube.answers import EventType, WatchEvent

_log = logging.getLogger(__name__)


class Policy:
    """A NodeApprovalPolicy, wherever its content comes from.

    made ── take() ──> in force ── offer() ──> in force: the newest valid content ── close() ──> closed
    """

    def __init__(self, source: str, tools: Tools) -> None:
        self._source = source
        self._tools = tools
        self._fetcher: Fetcher | None = None
        self._replaced: list[Fetcher] = []
        self._seen: bytes | None = None
        self._policy: NodeApprovalPolicy | None = None
        self._readers: list[Callable[[], None]] = []
        self.problem = ""
        """Why the present content is not in force; '' if it is."""

    @property
    def is_known(self) -> bool:
        """Whether there is a policy in force."""
        return self._policy is not None

    @property
    def current(self) -> NodeApprovalPolicy:
        """The policy in force. There must be one."""
        assert self._policy is not None
        return self._policy

    @property
    def sources(self) -> Fetcher:
        """The open sources of the policy in force."""
        assert self._fetcher is not None
        return self._fetcher

    def subscribe(self, reader: Callable[[], None]) -> None:
        """Call a function after each change of the policy in force, beginning with the first one."""
        self._readers.append(reader)

    def take(self, content: bytes) -> None:
        """Put content in force.

        Raises DocumentError, ValidationError with every field that is wrong, or the error of a source that cannot be opened.
        """
        if content == self._seen:
            self.problem = ""
            return
        changed = node_approval.read(content, source=self._source)
        fetcher = Fetcher(changed, self._tools)
        if self._fetcher is not None:
            self._replaced.append(self._fetcher)
        self._seen, self._policy, self._fetcher, self.problem = content, changed, fetcher, ""
        _log.info("%s: policy version %s is in force", self._source, changed.version)
        for notice in notices(changed):
            _log.warning("%s: %s", self._source, notice)
        for reader in self._readers:
            reader()

    def offer(self, content: Callable[[], bytes]) -> None:
        """Put content in force if it is valid. Otherwise its problem is logged once, and the policy in force stays."""
        try:
            self.take(content())
        except KubewrightError as error:
            if str(error) != self.problem:
                kept = f"policy version {self._policy.version} stays in force" if self._policy is not None else "there is no policy yet"
                _log.error("%s: %s", kept, error)
            self.problem = str(error)

    async def close_replaced(self) -> None:
        """Close the sources of policies that are no longer in force."""
        while self._replaced:
            await self._replaced.pop().close()

    async def close(self) -> None:
        """Close all sources. Idempotent."""
        await self.close_replaced()
        if self._fetcher is not None:
            await self._fetcher.close()


class PolicyFile(Policy):
    """A policy in a file: `load` reads it for the first time, and `refresh` is called every second."""

    def __init__(self, path: PurePosixPath, *, read: ReadFile, tools: Tools | None = None) -> None:
        super().__init__(str(path), tools or Tools(read=read))
        self._path = path
        self._read = read

    def load(self) -> None:
        """Read the file for the first time. Raises as `take` does."""
        self.take(self._content())

    def refresh(self) -> None:
        """Read the file again."""
        self.offer(self._content)

    def _content(self) -> bytes:
        content = self._read(self._path)
        if content is None:
            raise DocumentError(f"{self._path} does not exist", remedy="check --node-policy")
        return content


class PolicyConfigMap(Policy):
    """A policy in a ConfigMap: `changed` reads the events of its watch. Deleting it changes nothing."""

    def __init__(self, source: PolicyObject, tools: Tools) -> None:
        super().__init__(str(source), tools)
        self._object = source

    def changed(self, event: WatchEvent) -> None:
        """Read the new content."""
        if event.type is not EventType.DELETED:
            self.offer(lambda: content_of(event.object, self._object))


def notices(policy: NodeApprovalPolicy) -> list[str]:
    """Return warnings about settings that weaken a policy."""
    if not policy.trust_reported:
        return []
    return ["nodes may have every address that they report within nodeCIDRs: a node can take the address of one that is not known yet"]
