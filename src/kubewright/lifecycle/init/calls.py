"""One call of `init`, whether it plans or acts: what was asked, the configuration that came of it, and the run of the phases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.addresses import Addresses
from kubewright.apis.detected import Detected
from kubewright.apis.kubeadm.arguments import of_control_plane
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.layout import Layout
from kubewright.base.events import Line, Warned
from kubewright.base.records import dataclass, replace
from kubewright.base.waiting import Condition, Waiter
from kubewright.host.desired import File
from kubewright.host.seam import Host
from kubewright.lifecycle.init import external
from kubewright.lifecycle.init.context import InitContext, name_images
from kubewright.lifecycle.init.phases import INIT
from kubewright.lifecycle.init.request import InitRequest, configure
from kubewright.lifecycle.means import Means
from kubewright.lifecycle.starting.turns import AT_ONCE, Turns
from kubewright.pki.keys import KeyPool
from kubewright.workflow import runner
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.means import Machine

_KUBEADM_LAYOUT: Final = Layout()
_NO_CHECKS: Final[Mapping[str, Condition]] = {}


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of `init` on a machine."""

    request: InitRequest
    configuration: Configuration
    host: Host
    means: Means

    @classmethod
    def of(cls, request: InitRequest, *, machine: Machine, means: Means, layout: Layout = _KUBEADM_LAYOUT) -> Call:
        """Load the configuration and find the places that it names. Warnings are reported.

        `layout` is where this machine has what the configuration leaves open. Raises as `configure` does, and UsageError for a phase that
        cannot run alone.
        """
        if request.only:
            INIT.select(only=request.only)  # a phase that cannot run alone is told before the configuration is looked at
        here = machine(layout)
        loaded = configure(request, detected=_detected(here), random=means.random, layout=layout)
        for warning in loaded.warnings:
            means.reporter.emit(Warned(text=warning))
        places = _places(request, loaded.configuration, layout)
        host = here if places == layout else machine(places)
        call = cls(request=request, configuration=loaded.configuration, host=host, means=means)
        for warning in call._about_arguments():
            means.reporter.emit(Warned(text=warning))
        return call

    @property
    def addresses(self) -> Addresses:
        """Where this machine listens."""
        endpoint = self.configuration.init.local_api_endpoint
        return Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)

    @property
    def phases(self) -> frozenset[str]:
        """The full names of the phases that run. Raises UsageError for names that do not exist, or need others that are left out."""
        chosen = INIT.select(only=self.request.only, skip=self.configuration.init.skip_phases)
        return frozenset(node.name for node in chosen)

    def _about_arguments(self) -> list[str]:
        given = list(of_control_plane(self.configuration))
        if not given:
            return []
        from kubewright.lifecycle.init import arguments  # most configurations have no arguments

        return arguments.warnings(given, configuration=self.configuration, host=self.host, phases=self.phases)


def _detected(here: Host) -> Detected:
    found = here.facts.detected
    if found.cri_sockets:
        return found
    from kubewright.lifecycle import machine_record  # most machines have a container runtime

    return machine_record.with_runtime(found, here)


def _places(request: InitRequest, configuration: Configuration, layout: Layout) -> Layout:
    local = configuration.cluster.etcd.local
    moved = layout.at(pki=configuration.cluster.certificates_dir, etcd_data=local.data_dir if local else None)
    moved = replace(moved, cri_socket=configuration.init.node_registration.cri_socket)
    return replace(moved, kubernetes=PurePosixPath(request.kubeconfig_directory)) if request.kubeconfig_directory else moved


@contextmanager
def context(
    call: Call,
    host: Host,
    *,
    waiter: Waiter,
    connect: Callable[[str], KubeAPI],
    kubelet_makes: tuple[File, ...] = (),
    health_checks: Mapping[str, Condition] = _NO_CHECKS,
    preflight: Callable[[InitContext], Iterable[Step]] = name_images,
    turns: Turns = AT_ONCE,
) -> Iterator[InitContext]:
    """Give what the phases work with. Keys that are still being made at the end are dropped."""
    means, request = call.means, call.request
    with KeyPool() as keys:
        yield InitContext(
            configuration=call.configuration,
            layout=host.layout,
            addresses=call.addresses,
            detected=host.facts.detected,
            host=host,
            keys=keys,
            clock=means.clock,
            random=means.random,
            waiter=waiter,
            reporter=means.reporter,
            connect=connect,
            started=means.clock.now(),
            upload_certs=request.upload_certs,
            show_token=request.show_token,
            show_certificate_key=request.show_certificate_key,
            phases=call.phases,
            kubelet_makes=kubelet_makes,
            health_checks=health_checks,
            preflight=preflight,
            turns=turns,
        )


def run(ctx: InitContext, call: Call, *, order: Sequence[str] = ()) -> runner.Result:
    """Run the phases that were asked for, some of them in another `order` than the tree's (see `runner.run`).

    Raises, before any of them, as `external.check` does.
    """
    external.check(ctx)
    if not call.request.only:
        ctx.reporter.emit(Line(topic="init", text=f"Using Kubernetes version: {call.configuration.cluster.kubernetes_version}"))
    return runner.run(
        INIT,
        ctx,
        reporter=call.means.reporter,
        clock=call.means.clock,
        only=call.request.only,
        skip=call.configuration.init.skip_phases,
        order=order,
    )
