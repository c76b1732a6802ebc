"""What the phases of `node join` work with: the cluster as the holder of a token, the key of this join, the hub's answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.base.change import Change, Lifetime
from kubewright.base.events import Line, Warned
from kubewright.base.records import dataclass
from kubewright.enrollment import answers, fields
from kubewright.enrollment.answers import Answer
from kubewright.enrollment.fields import SymmetricKey
from kubewright.enrollment.node.request import NodeJoin
from kubewright.host.desired import File, Show
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.resources import NODE_JOIN_REQUEST
from kubewright.lifecycle.operation import Bound

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.host.seam import Host
    from kubewright.kube.api import KubeAPI

TOPIC: Final = "node-join"
_KEY_FILE: Final = "node-join.key"
_PRIVATE: Final = 0o700
FetchKubelet = Callable[[str], bytes]
"""Gives the program of a version: `1.36.3`."""


@dataclass(frozen=True, kw_only=True)
class NodeJoinContext:
    """One run. Frozen; what a phase obtains for later ones comes from lazy properties."""

    bound: Bound
    join: NodeJoin
    fetch: FetchKubelet

    @property
    def host(self) -> Host:
        """The machine."""
        return self.bound.host

    @property
    def layout(self) -> Layout:
        """Where everything of this machine lies."""
        return self.bound.host.layout

    @property
    def kubeconfig(self) -> PurePosixPath:
        """The kubelet's kubeconfig: the last file that is written, so that where it is, the others are."""
        return self.layout.oneinfra / "kubelet.conf"

    @property
    def key_path(self) -> PurePosixPath:
        """Where the key of this join is kept until the join is over."""
        return self.layout.state / _KEY_FILE

    @functools.cached_property
    def key(self) -> SymmetricKey:
        """The key of this join: that of a run which was broken off, else a new one. `keep_key` puts it on the disk before it is used."""
        found = self.host.read(self.key_path)
        return fields.new_key(self.bound.machine.random) if found is None else fields.usable_key(found, name=str(self.key_path))

    def keep_key(self) -> Change:
        """Keep the key until the join is over."""
        content = self.key.content
        return self.host.ensure(
            File(path=self.key_path, content=content, show=Show.MADE, directory_mode=_PRIVATE, lifetime=Lifetime.EPHEMERAL)
        )

    @functools.cached_property
    def access(self) -> Access:
        """The cluster, as the holder of the token."""
        return Access(server=self.join.server, ca_pem=self.join.ca_pem, identity=BearerToken(self.join.token.text))

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The cluster, which is asked and told."""
        return self.bound.connections.kube(self.access)

    @functools.cached_property
    def answering(self) -> KubeAPI:
        """The cluster with a hub that answers: where nobody was asked, in a plan, an answer of ours stands in for the hub's."""
        return self.bound.connections.kube(self.access, stand_ins=self._stand_ins())

    def _stand_ins(self) -> Iterator[Mapping[str, Any]]:
        from kubewright.enrollment.node import stand_ins

        yield stand_ins.answered(self.join, self.key, clock=self.bound.clock, random=self.bound.machine.random)

    @functools.cached_property
    def answer(self) -> Answer:
        """What the hub has answered, decrypted and not checked yet. Raises MalformedField."""
        found = self.answering.get(NODE_JOIN_REQUEST, self.join.node)
        return answers.read(found.get("status") or {}, self.key)

    def say(self, text: str) -> None:
        """Report one line of progress."""
        self.bound.reporter.emit(Line(topic=TOPIC, text=text))

    def warn(self, text: str) -> None:
        """Report what the user should know."""
        self.bound.reporter.emit(Warned(text=text))


def until_joined(ctx: NodeJoinContext) -> str | None:
    """Leave a phase out where this machine has what the hub gives it."""
    return f"{ctx.kubeconfig} is there: the hub has answered" if ctx.bound.base.state(ctx.kubeconfig) is not None else None
