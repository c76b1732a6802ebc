"""Verifies that a static pod runs what its manifest says, from its container and the component itself, not from the pod's phase.

A pod is Running as soon as its container has been started once, even if that has exited since. Here a component runs
from a manifest if a container that was created after the manifest was written has stayed up, reports healthy, and
reports the version of the manifest's image. It must still be the same container when the operation ends: one that fails
later, for example when it becomes the leader, is healthy until then, and is restarted by the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from kubewright.apis.machine import url
from kubewright.base.errors import APIError, ComponentFailed, HostError
from kubewright.base.records import dataclass, field
from kubewright.base.wait import Condition
from kubewright.host.seam import Host
from kubewright.host.states import Container, ContainerState, Sandbox
from kubewright.lifecycle.diagnosis import failures, remedies
from kubewright.lifecycle.diagnosis.observation import NAMESPACE, last_errors
from kubewright.lifecycle.steps.component_versions import core, first_container

STEADY: Final = 10.0
"""Seconds for which a container must run: one that fails at its start has exited by then."""
ELECTED: Final = 30.0
"""Seconds after its start in which a leader is expected: the Lease of a former one expires after 15."""
NOT_STARTED: Final = "the kubelet has not started it from the manifest yet"
"""The fault of a static pod whose former container is still running, or whose new one does not exist yet."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The requests to a component: its health, its version, and its leader.

    `version` returns '' if it is not reported, and raises APIError. `led` returns why it is not known that a leader has
    been at work since a time, in seconds since 1970; None if it is, and for components without leaders. `note` is called
    before the component is replaced.
    """

    healthy: Condition
    version: Callable[[], str]
    led: Callable[[float], str | None] = lambda _: None
    note: Callable[[], None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class StaticPodProof:
    """Verifies that a static pod of a machine runs from its present manifest."""

    name: str
    """The name of the component, and of its container."""
    pod: str
    """The name of the pod."""
    asked: Asked
    host: Host
    now: Callable[[], float]
    """Returns the time in seconds since 1970."""
    earlier: set[str] = field(default_factory=set)
    """The UIDs of the pods that existed before the manifest was replaced: when it is restored, one of them may continue."""
    former: set[str] = field(default_factory=set)
    """The IDs of the sandboxes that existed before the manifest was replaced or restored."""
    replaced: set[str] = field(default_factory=set)
    """The UIDs of the pods of the manifest that was taken away again: they may still be failing."""
    proven: list[Container] = field(default_factory=list)
    """The container that has passed the verification; empty before."""
    reported: list[str] = field(default_factory=list)
    """The version that the component reported when it passed; empty before."""

    def note(self) -> None:
        """Record the existing pods before the manifest is replaced.

        If the runtime does not answer, the wait reports it.
        """
        with suppress(HostError):
            self.earlier.update(one.pod_uid for one in self._containers() if one.pod_uid)
        self.note_former()
        self.asked.note()

    def note_former(self) -> None:
        """Record the existing sandboxes before a manifest is replaced or restored."""
        with suppress(HostError):
            self.former.update(one.id for one in self._sandboxes())

    def note_replaced(self) -> None:
        """Record the existing pods before the manifest is restored, except for those that it may continue."""
        self.note_former()
        with suppress(HostError):
            self.replaced.update({one.pod_uid for one in self._containers()} - self.earlier)

    def is_replaced(self) -> bool:
        """Whether the latest container still belongs to a manifest that was taken away again."""
        with suppress(HostError):
            latest = max(self._containers(), key=lambda one: one.created, default=None)
            return latest is not None and latest.pod_uid in self.replaced
        return False

    def stop_former(self) -> None:
        """Stop the recorded sandboxes, with everything in them.

        If the runtime does not answer, the wait reports it.
        """
        with suppress(HostError):
            for sandbox in self._sandboxes():
                if sandbox.id in self.former and sandbox.ready:
                    self.host.runtime.stop_sandbox(sandbox)

    def fault(self, version: str, *, back: bool = False, steady: float = 0.0) -> str | None:
        """Return why the component does not run from its manifest in this version ('' for any); None if it does.

        With `back`, the manifest was restored, and a pod from before its replacement is accepted too. With `steady`, the
        component must have run for so many seconds, and a leader must have been elected, unless that takes too long. A
        missing version is accepted only after a while, because components refuse to report it at first. Raises
        ComponentFailed if the container that has passed before has ended.
        """
        try:
            running = self._running(back=back)
        except HostError as error:
            return str(error)
        if steady:
            self._require_lasting(running)
        if running is None:
            return NOT_STARTED
        reason = self.asked.healthy()
        if reason is not None:
            return reason
        try:
            reported = self.asked.version()
        except APIError as error:
            return str(error)
        if version and reported and core(reported) != version:
            return f"it reports {reported}, not {version}"
        age = self.now() - running.created
        if version and not reported and age < STEADY:
            return "it does not report its version yet"
        self.proven[:], self.reported[:] = [running], [reported]
        if age < steady:
            return f"it has been running for {age:.0f} s"
        return self.asked.led(running.created) if steady and age < ELECTED else None

    @property
    def age(self) -> float:
        """The seconds for which the proven container has been running."""
        return max((self.now() - one.created for one in self.proven), default=0.0)

    def require_lasting(self) -> None:
        """Raise ComponentFailed if the proven container has ended.

        If the runtime does not answer, nothing is known.
        """
        try:
            running = self._running(back=False)
        except HostError:
            return
        self._require_lasting(running)

    def _require_lasting(self, running: Container | None) -> None:
        for proven in self.proven:
            if running is None or running.id != proven.id:
                said = last_errors(self.host, self.name, container=proven.id)
                detail = "\n".join(failures.with_heading(self.name, said))
                raise ComponentFailed(f"{self.name} has ended since its upgrade", detail=detail, remedy=remedies.of_component(said))

    def _running(self, *, back: bool) -> Container | None:
        state = self.host.state(self.host.layout.manifest(self.name))
        since = state.modified if state is not None else float("inf")
        latest = max(self._containers(), key=lambda one: one.created, default=None)
        if latest is None or latest.state is not ContainerState.RUNNING:
            return None
        return latest if latest.created >= since or (back and latest.pod_uid in self.earlier) else None

    def _sandboxes(self) -> list[Sandbox]:
        return [one for one in self.host.runtime.sandboxes() if one.namespace == NAMESPACE and one.name == self.pod]

    def _containers(self) -> list[Container]:
        return [one for one in self.host.runtime.containers(namespace=NAMESPACE) if one.name == self.name]


def probed(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the server and path of a static pod's liveness probe; None if it has no such probe."""
    container = first_container(pod)
    try:
        asked, ports = container["livenessProbe"]["httpGet"], {one.get("name"): one["containerPort"] for one in container.get("ports", ())}
        port = ports.get(asked["port"], asked["port"])
        return url(asked["host"], int(port), scheme=asked.get("scheme", "HTTP").lower()), str(asked["path"])
    except (TypeError, LookupError, ValueError, AttributeError):
        return None
