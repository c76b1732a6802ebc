"""Reading the cluster's configuration with the bootstrap identity (kubeadm v1.36: util/config/cluster.go)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from kubewright.apis.kubeadm.loading import load_cluster
from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.kubeadm.types import Configuration, InitConfiguration, LocalAPIEndpoint
from kubewright.base.errors import Forbidden, KubewrightError, NotFound, ServerError, TooManyRequests, Unreachable
from kubewright.base.events import Warned
from kubewright.base.yaml import Document
from kubewright.kube.refusals import Patience
from kubewright.lifecycle import stored_configuration

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.join.context import JoinContext


T = TypeVar("T")

TOPIC: Final = "preflight"


def configuration(ctx: JoinContext) -> Configuration:
    """Return the cluster's configuration with this machine's part in `init`.

    Raises APIError if it cannot be read within `timeouts.kubernetesAPICall`, ValidationError if it cannot be used.
    """
    api = ctx.bootstrap
    for text in stored_configuration.READING:
        ctx.say(TOPIC, text)
    found = [_document(ctx, api, row) for row in (stored_configuration.KUBEADM_CONFIG, stored_configuration.KUBELET_CONFIG)]
    return _loaded(ctx, [*found, *_kube_proxy(ctx, api)])


def read_early(ctx: JoinContext) -> None:
    """Find the cluster, and read the objects that `configuration` will need, with one attempt each: failures are left to it.

    Raises what finding the cluster raises.
    """
    api = ctx.bootstrap
    for row in (stored_configuration.KUBEADM_CONFIG, stored_configuration.KUBELET_CONFIG, stored_configuration.KUBE_PROXY):
        with suppress(KubewrightError):
            ctx.read_ahead[row] = stored_configuration.document(api, row)


def _document(ctx: JoinContext, api: KubeAPI, row: stored_configuration.StoredDocument) -> Document:
    return ctx.read_ahead.pop(row, None) or patiently(ctx, lambda: stored_configuration.document(api, row))


def _kube_proxy(ctx: JoinContext, api: KubeAPI) -> list[Document]:
    """Read kube-proxy's configuration, which a cluster may lack."""
    try:
        return [_document(ctx, api, stored_configuration.KUBE_PROXY)]
    except (NotFound, Forbidden):
        ctx.reporter.emit(
            Warned(text="the cluster has no ConfigMap kube-system/kube-proxy that can be read: it is taken to use no kube-proxy")
        )
        return []


def patiently(ctx: JoinContext, call: Callable[[], T]) -> T:
    """Call until it succeeds: for `timeouts.kubernetesAPICall` if the server fails or is not ready, briefly if it refuses us."""
    patience = Patience(
        api=lambda: ctx.bootstrap,
        anonymous=lambda: ctx.anonymous,
        clock=ctx.clock,
        reporter=ctx.reporter,
        within=ctx.join.timeouts.kubernetes_api_call.seconds,
        passes=lambda error: isinstance(error, (Unreachable, ServerError, TooManyRequests)),
    )
    return patience.call(call)


def _loaded(ctx: JoinContext, documents: list[Document]) -> Configuration:
    init = machine_part(ctx.join, advertise=ctx.addresses.advertise)
    # the warnings were shown when the cluster was created; kubeadm shows them again to every joining machine
    return load_cluster(documents, endpoint=init.local_api_endpoint).on_machine(init)


def machine_part(join: JoinConfiguration, *, advertise: str) -> InitConfiguration:
    """Return a JoinConfiguration's settings of a machine in the form that all phases read.

    `advertise` is a placeholder on a worker.
    """
    plane = join.control_plane
    return InitConfiguration(
        node_registration=join.node_registration,
        local_api_endpoint=plane.local_api_endpoint if plane is not None else LocalAPIEndpoint(advertise_address=advertise),
        certificate_key=plane.certificate_key if plane is not None else "",
        dry_run=join.dry_run,
        skip_phases=join.skip_phases,
        patches_directory=join.patches_directory,
        timeouts=join.timeouts,
    )
