"""Waits for healthy components of this machine (kubeadm v1.36: util/apiclient/wait.go), with the machine's observations as the reason."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from kubewright.apis.kubeadm.types import Configuration, ControlPlaneComponent
from kubewright.apis.machine import Addresses, Detected, Layout, url
from kubewright.base.durations import Duration
from kubewright.base.errors import APIError, WaitTimeout
from kubewright.base.records import dataclass
from kubewright.base.wait import Condition, Waiter
from kubewright.http import sync, tls
from kubewright.manifests.pods import Inputs, probe_host

if TYPE_CHECKING:
    from kubewright.base.events import Waited
    from kubewright.http.messages import Response
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.deferred_manifests import DeferredManifests
    from kubewright.lifecycle.diagnosis.cluster import BootstrapLook
    from kubewright.lifecycle.diagnosis.watch import Diagnosis
    from kubewright.lifecycle.steps.health_lines import HealthLines
    from kubewright.workflow.phases import Step

LOOK: Final = 0.02
"""Seconds between two checks of a server that is about to answer: everything else waits for it."""
_REMEDY: Final = "fix what the component reports, then run the same command again"
_PATIENCE: Final = 2.0
_API_SERVER: Final = "kube-apiserver"


class MakeDiagnosis(Protocol):
    """Creates the diagnosis of one wait, for static pods by their names."""

    def __call__(self, names: Sequence[str], /, *, bootstrap: BootstrapLook | None = None) -> Diagnosis:
        """Return the diagnosis, which observes from now on."""
        ...


@dataclass(frozen=True, kw_only=True)
class ComponentWaiter:
    """Waits for static pods of one machine.

    `diagnosis` returns the reasons of failures, `within` is the time limit in seconds.
    """

    waiter: Waiter
    diagnosis: MakeDiagnosis
    within: float

    def until(
        self,
        condition: Condition,
        *,
        saying: str,
        blame: Sequence[str],
        within: float | None = None,
        every: float = LOOK,
        at_most: float | None = None,
        remedy: str = _REMEDY,
        bootstrap: BootstrapLook | None = None,
    ) -> Waited:
        """Wait at most `within` seconds; without them, the limit of components.

        Checks are `every` seconds apart, growing to `at_most`.

        `blame` names the static pods that it needs, in the order of their dependencies; none for a wait for the kubelet
        itself. The messages of these pods, the kubelet, the runtime and, through `bootstrap`, the cluster are the
        reason that is shown, and the diagnosis of a failure. Raises ComponentFailed as soon as waiting is pointless,
        WaitTimeout in the end; `remedy` is used if the diagnosis has none.
        """
        diagnosis = self.diagnosis(blame, bootstrap=bootstrap)
        return self.waiter.until(
            diagnosis.explained(condition),
            within=self.within if within is None else within,
            saying=saying,
            every=every,
            at_most=every if at_most is None else at_most,
            diagnose=diagnosis.diagnose,
            remedy=lambda: diagnosis.remedy() or remedy,
        )


def healthy(
    components: ComponentWaiter,
    *,
    probe: KubeAPI,
    server: str,
    manifests: DeferredManifests,
    others: Mapping[str, Condition],
    lines: HealthLines,
) -> Iterable[Step]:
    """Wait for the API server of `probe` at `server`, write the remaining manifests, and wait for the other components of this machine."""
    places = {name: f"{endpoint.server}{endpoint.path}" for name, endpoint in others.items() if isinstance(endpoint, HealthEndpoint)}
    lines.components({_API_SERVER: f"{server}/readyz", **places}, within=Duration.of_seconds(components.within))
    yield lines.component(_API_SERVER, lambda: api_server(components, probe=probe, manifests=manifests))
    yield from manifests.finish()
    for name, condition in others.items():
        yield lines.component(name, functools.partial(components.until, condition, saying=f"{name} to be healthy", blame=(name,)))


def api_server(components: ComponentWaiter, *, probe: KubeAPI, manifests: DeferredManifests) -> Waited:
    """Wait until the API server reports ready, after all its post-start hooks. Raises the error of a manifest."""

    def ready() -> str | None:
        manifests.check()
        return unready(probe)

    return components.until(ready, saying="the API server to be ready", blame=(_API_SERVER,))


def unready(probe: KubeAPI) -> str | None:
    """Return why an API server does not report ready; None if it does."""
    try:
        answer = probe.raw("GET", "/readyz")
    except APIError as error:
        return str(error)
    return None if answer.status == 200 else _reason(_failed(answer))


def unready_once_started(probe: KubeAPI, *, waiter: Waiter, within: float) -> str | None:
    """Return why an API server does not report ready; None if it does.

    One that is starting is waited for, for `within` seconds: it answers, and has etcd. Any other may never be ready.
    """
    with suppress(APIError, WaitTimeout):
        if _starting(probe) is not None:
            waiter.until(lambda: _starting(probe), within=within, saying="the API server to be ready")
    return unready(probe)


def _starting(probe: KubeAPI) -> str | None:
    """Return the checks that fail until an API server has started; None if there are none, or if etcd fails, too."""
    names = _failed(probe.raw("GET", "/readyz"))
    return _reason(names) if names and not any(name.startswith("etcd") for name in names) else None


def _failed(answer: Response) -> list[str]:
    """Return the names of the failed checks in an answer of /readyz."""
    lines = answer.body.decode(errors="replace").splitlines()
    return [line.removeprefix("[-]").split(" ")[0] for line in lines if line.startswith("[-]")]


def _reason(names: Sequence[str]) -> str:
    return f"not yet: {', '.join(names)}" if names else "it is not ready"


def checks(configuration: Configuration, *, layout: Layout, addresses: Addresses, detected: Detected) -> Mapping[str, HealthEndpoint]:
    """Return the health endpoints of the components without a client."""

    def endpoint(component: ControlPlaneComponent, port: int, path: str) -> HealthEndpoint:
        given = Inputs(configuration=configuration, layout=layout, addresses=addresses, detected=detected, extra_args=component.extra_args)
        host = probe_host(given.bind_address(addresses.loopback)) or addresses.loopback
        return HealthEndpoint(url(host, given.secure_port(port)), path)

    cluster, ports = configuration.cluster, addresses.ports
    return {
        "kube-controller-manager": endpoint(cluster.controller_manager, ports.controller_manager, "/healthz"),
        "kube-scheduler": endpoint(cluster.scheduler, ports.scheduler, "/livez"),
    }


class HealthEndpoint:
    """A health endpoint of a program on this machine: a condition that holds once it answers 200.

    All requests use one connection, which is closed when it is healthy. Its TLS certificate is not verified: it is
    self-signed.
    """

    def __init__(self, server: str, path: str) -> None:
        self.server = server
        self.path = path

    @functools.cached_property
    def _transport(self) -> sync.Transport:
        context = tls.anonymous_context(None, verify=False) if self.server.startswith("https:") else None
        return sync.Transport(self.server, context=context)

    def __call__(self) -> str | None:
        """Return why it is not healthy; None if it is."""
        try:
            answer = self._transport.request("GET", self.path, timeout=_PATIENCE)
        except APIError as error:
            return str(error)
        if answer.status == 200:
            self.close()
            return None
        return f"{self.server}{self.path} answers {answer.status}: {answer.body[:200].decode(errors='replace')}"

    def close(self) -> None:
        """Close the connection; a later request opens another one. Idempotent."""
        self._transport.close()
