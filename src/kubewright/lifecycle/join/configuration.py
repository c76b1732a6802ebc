"""Reading the cluster's configuration with the bootstrap identity (kubeadm v1.36: util/config/cluster.go)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from kubewright.apis.kubeadm.loading import load_cluster
from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.kubeadm.types import Configuration, InitConfiguration, LocalAPIEndpoint
from kubewright.base.errors import APIError, Forbidden, KubewrightError, NotFound, ServerError, TooManyRequests, Unauthorized, Unreachable
from kubewright.base.events import Waiting, Warned
from kubewright.base.wait import REPORT_AFTER, Backoff, retry
from kubewright.base.yaml import Document
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle import stored_configuration
from kubewright.tokens import cluster_info

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.join.context import JoinContext


T = TypeVar("T")

TOPIC: Final = "preflight"
REFUSED: Final = 2.0
"""Seconds that a refusal may last: a new token, and new rights, are known to an API server a moment after they were written."""
_PAUSES: Final = Backoff(first=0.05, factor=1.5, limit=0.5)
_STARTING: Final = frozenset({500, 503})
"""What `/readyz` answers while a server starts; 401 is about who asks, and 404 comes from something else."""


def configuration(ctx: JoinContext) -> Configuration:
    """Return the cluster's configuration with this machine's part in `init`.

    Raises APIError for what cannot be read within `timeouts.kubernetesAPICall`, ValidationError for what cannot be used.
    """
    api = ctx.bootstrap
    ctx.say(TOPIC, 'Reading configuration from the "kubeadm-config" ConfigMap in namespace "kube-system"...')
    ctx.say(TOPIC, "Use 'kubewright init phase upload-config kubeadm --config your-config-file' to re-upload it.")
    found = [_document(ctx, api, row) for row in (stored_configuration.KUBEADM_CONFIG, stored_configuration.KUBELET_CONFIG)]
    return _loaded(ctx, [*found, *_kube_proxy(ctx, api)])


def read_early(ctx: JoinContext) -> None:
    """Find the cluster, and read what `configuration` will ask for, with one try for each: what fails is left to it.

    Raises what finding the cluster raises.
    """
    api = ctx.bootstrap
    for row in (stored_configuration.KUBEADM_CONFIG, stored_configuration.KUBELET_CONFIG, stored_configuration.KUBE_PROXY):
        with suppress(KubewrightError):
            ctx.read_ahead[row] = stored_configuration.document(api, row)


def _document(ctx: JoinContext, api: KubeAPI, row: stored_configuration.Row) -> Document:
    return ctx.read_ahead.pop(row, None) or patiently(ctx, lambda: stored_configuration.document(api, row))


def _kube_proxy(ctx: JoinContext, api: KubeAPI) -> list[Document]:
    """Read what kube-proxy works with; a cluster may do without."""
    try:
        return [_document(ctx, api, stored_configuration.KUBE_PROXY)]
    except (NotFound, Forbidden):
        ctx.reporter.emit(Warned(text="the cluster has no ConfigMap kube-system/kube-proxy that can be read: it does without kube-proxy"))
        return []


class _Stage(enum.Enum):
    """How far a server is that refuses us."""

    STARTING = enum.auto()
    RIGHTS_READ = enum.auto()
    """It knows who may do what; whether it has read the tokens too, nobody tells."""
    READY = enum.auto()


def patiently(ctx: JoinContext, call: Callable[[], T]) -> T:
    """Call until it succeeds: for `timeouts.kubernetesAPICall` where the server fails or is not ready, for `REFUSED` where it refuses us.

    Where nobody says whether it is ready, it is `REFUSED` once more from when it knows who may do what. What is waited for is told once a second.
    """
    start = told = ctx.clock.monotonic()
    stage = _Stage.STARTING

    def tell(error: Exception, _: int) -> None:
        nonlocal told
        now = ctx.clock.monotonic()
        if now - told >= REPORT_AFTER:
            told = now
            ctx.reporter.emit(Waiting(what="the API server to answer", reason=str(error), elapsed=now - start))

    def passes(error: Exception) -> bool:
        nonlocal stage
        if not isinstance(error, (Unauthorized, Forbidden)):
            return isinstance(error, (Unreachable, ServerError, TooManyRequests))
        before, stage = stage, _stage(ctx, error)
        return stage is _Stage.STARTING or (stage is _Stage.RIGHTS_READ and before is not stage)

    return retry(
        lambda: retry(call, clock=ctx.clock, on=(Unauthorized, Forbidden), within=REFUSED, backoff=_PAUSES),
        clock=ctx.clock,
        on=passes,
        within=ctx.join.timeouts.kubernetes_api_call.seconds,
        backoff=_PAUSES,
        failed=tell,
    )


def _stage(ctx: JoinContext, refusal: Unauthorized | Forbidden) -> _Stage:
    """Tell how far the server is: until it has read which tokens there are, and who may do what, it refuses everybody everything.

    It is then not ready, or refuses even to say so, which anybody may ask where nobody changed ClusterRoleBinding system:public-info-viewer.
    """
    # a token that it does not know would not be told
    api = ctx.anonymous if isinstance(refusal, Unauthorized) else ctx.bootstrap
    try:
        status = api.raw("GET", "/readyz").status
    except APIError:  # it is being started again
        return _Stage.STARTING
    if status == 403:
        return _Stage.RIGHTS_READ if _knows_rights(ctx.anonymous) else _Stage.STARTING
    return _Stage.STARTING if status in _STARTING else _Stage.READY


def _knows_rights(anybody: KubeAPI) -> bool:
    """Tell whether the server has read who may do what: everybody may read cluster-info."""
    try:
        anybody.get(CONFIG_MAP, cluster_info.NAME, cluster_info.NAMESPACE)
    except APIError:
        return False
    return True


def _loaded(ctx: JoinContext, documents: list[Document]) -> Configuration:
    init = machine_part(ctx.join, advertise=ctx.addresses.advertise)
    # its warnings were shown where the cluster was made; kubeadm shows them again to everybody who joins
    return load_cluster(documents, endpoint=init.local_api_endpoint).on_machine(init)


def machine_part(join: JoinConfiguration, *, advertise: str) -> InitConfiguration:
    """Return what a JoinConfiguration says of a machine, in the form that all phases read. `advertise` stands in on a worker."""
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
