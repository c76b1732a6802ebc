"""What was seen of a machine at one moment, as plain values."""

from __future__ import annotations

from kubewright.base.records import dataclass
from kubewright.host.states import Container, ContainerState, ServiceState


@dataclass(frozen=True, kw_only=True)
class Component:
    """A static pod. `lives` are the lives of its container that the runtime still knows, the latest first.

    `words` are the last ones of a life that has ended. `image` is what its manifest names; it is looked for only where a pod has begun and
    no container is there.
    """

    name: str
    lives: tuple[Container, ...] = ()
    begun: bool = True
    words: tuple[str, ...] = ()
    image: str = ""
    image_missing: bool = False

    @property
    def latest(self) -> Container | None:
        """Its present life, or the last one."""
        return self.lives[0] if self.lives else None

    @property
    def runs(self) -> bool:
        """Whether it runs at the moment."""
        return self.latest is not None and self.latest.state is ContainerState.RUNNING

    @property
    def ends(self) -> int:
        """How often it has ended since its pod was made."""
        if self.latest is None:
            return 0
        return self.latest.attempt + (self.latest.state is ContainerState.EXITED)

    def ends_before(self, moment: float) -> int:
        """Return how many of its ends, those to come included, are of lives that began before a moment.

        A run that goes on after another one does not count these: what a life lacked when it began may have come since.
        """
        if not self.lives:
            return 0
        past = [life.attempt + 1 for life in self.lives if life.created < moment]
        return max(past) if past else min(life.attempt for life in self.lives)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The machine at one moment. `kubelet` is None where no service manager knows it, or nobody asked; `words` are the kubelet's, where they were asked for.

    `runtime` says why the container runtime does not answer, '' if it does.
    """

    kubelet: ServiceState | None = None
    words: tuple[str, ...] = ()
    runtime: str = ""
    components: tuple[Component, ...] = ()
