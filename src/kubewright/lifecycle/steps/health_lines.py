"""The lines about waits for a healthy kubelet and healthy components, which scripts look for.

Source: kubeadm v1.36: util/apiclient/wait.go, cmd/phases/init/waitcontrolplane.go, cmd/phases/join/kubelet.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kubewright.base.durations import Duration
from kubewright.base.errors import KubewrightError
from kubewright.base.events import Line, Reporter
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from kubewright.base.clock import Clock
    from kubewright.base.events import Waited

KUBELET: Final = "kubelet-check"
COMPONENTS: Final = "control-plane-check"
_MILLISECOND: Final = 1_000_000
_KUBELET_HELP: Final = """\
More about the kubelet, on a machine with systemd:
	- 'systemctl status kubelet'
	- 'journalctl -xeu kubelet'
"""
_COMPONENTS_HELP: Final = """\
All containers of the control plane, and the log of one of them:
	- 'crictl --runtime-endpoint {socket} ps -a | grep kube | grep -v pause'
	- 'crictl --runtime-endpoint {socket} logs CONTAINERID'
"""


@dataclass(frozen=True, kw_only=True)
class HealthLines:
    """Reports the waits of one run. `waits` is False for plans and dry runs, which wait for nothing; `socket` is the runtime's."""

    reporter: Reporter
    clock: Clock
    socket: str
    waits: bool

    def kubelet(self, server: str, wait: Callable[[], Waited], *, within: Duration) -> Waited:
        """Report the wait for a kubelet that serves its health at `server`. Raises what `wait` raises."""
        if self.waits:
            self._say(KUBELET, f"Waiting for a healthy kubelet at {server}/healthz. This can take up to {within}")
        return self._reported("The kubelet", wait, topic=KUBELET, advice=_KUBELET_HELP)

    @contextmanager
    def kubelet_advice(self) -> Iterator[None]:
        """Advise on the kubelet if an error is raised in the block."""
        try:
            yield
        except KubewrightError:
            self.reporter.emit(Line(topic="", text=_KUBELET_HELP))
            raise

    def components(self, places: dict[str, str], *, within: Duration) -> None:
        """Report which components are waited for: the URLs that are requested, by name."""
        if not self.waits:
            return
        self._say(COMPONENTS, f"Waiting for healthy control plane components. This can take up to {within}")
        for name, place in places.items():
            self._say(COMPONENTS, f"Checking {name} at {place}")

    def component(self, name: str, wait: Callable[[], Waited], *, reports_success: bool = True) -> Waited:
        """Report the result of the wait for a component. Raises what `wait` raises."""
        advice = _COMPONENTS_HELP.format(socket=self.socket)
        return self._reported(name, wait, topic=COMPONENTS, advice=advice, reports_success=reports_success)

    def _reported(self, name: str, wait: Callable[[], Waited], *, topic: str, advice: str, reports_success: bool = True) -> Waited:
        began = self.clock.monotonic()
        try:
            waited = wait()
        except KubewrightError:
            self._say(topic, f"{name} is not healthy after {self._since(began)}")
            self.reporter.emit(Line(topic="", text=advice))
            raise
        if self.waits and reports_success:
            self._say(topic, f"{name} is healthy after {self._since(began)}")
        return waited

    def _since(self, began: float) -> Duration:
        found = Duration.of_seconds(self.clock.monotonic() - began)
        return Duration(found // _MILLISECOND * _MILLISECOND or found)

    def _say(self, topic: str, text: str) -> None:
        self.reporter.emit(Line(topic=topic, text=text))
