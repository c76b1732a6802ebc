"""The phase `preflight` of join: checks of this machine, discovery, the cluster's configuration, and a control plane's images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.base.change import Change
from kubewright.base.checks import Report, run_checks
from kubewright.base.errors import HostError, ValidationError
from kubewright.base.events import Waited
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.host.seam import Host
from kubewright.lifecycle.background_task import BackgroundTask
from kubewright.lifecycle.join import configuration, kubelet
from kubewright.lifecycle.join.request import addresses, authority_path
from kubewright.lifecycle.steps import preflight
from kubewright.preflight import lists
from kubewright.preflight.checks import Subject

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

TOPIC: Final = "preflight"


def named(ctx: JoinContext) -> Iterable[Change]:
    """Report the checks, and read the cluster's configuration: plans do not check a machine."""
    ctx.say(TOPIC, "The machine is checked when join really runs, or by `preflight join`")
    _require_possible(ctx)
    return ()


def checked(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Check the machine, find the cluster and read its configuration. The machine's record is stored once it can join.

    Discovery and reading run concurrently with the checks, which mostly wait. A control plane has further checks,
    including the cluster's etcd, and its images are pulled.
    """
    ctx.say(TOPIC, "Running pre-flight checks")
    user, found = ctx.host.facts.user, BackgroundTask(lambda: configuration.read_early(ctx))
    found.begin()
    preflight.require_passed(for_join(ctx.join, host=ctx.host, user=user, resumed=ctx.resumed), reporter=ctx.reporter)
    found.result()
    _require_possible(ctx)
    if not kubelet.is_bootstrapped(ctx) and ctx.runs("kubelet-start"):
        kubelet.require_free_name(ctx)
    if ctx.control_plane:
        yield from _control_plane_can_join(ctx, user=user)
    ctx.bound.begin(ctx.layout, authority_path(ctx.join, ctx.host.layout))
    if ctx.control_plane:
        registration = ctx.configuration.init.node_registration
        yield from preflight.pull(ctx.cluster, registration, host=ctx.host, clock=ctx.clock, reporter=ctx.reporter)


def _control_plane_can_join(ctx: JoinContext, *, user: int) -> Iterable[Waited]:
    """Check this machine and the cluster's etcd for one more control plane, concurrently."""
    from kubewright.lifecycle.join import control_plane, etcd_voters  # includes the modules for certificates

    control_plane.reserve_keys(ctx)
    asked = BackgroundTask(lambda: etcd_voters.rehearsed(ctx))
    asked.begin()
    ctx.say(TOPIC, "Running pre-flight checks before initializing the new control plane instance")
    preflight.require_passed(_control_plane(ctx, user=user), reporter=ctx.reporter)
    copy = asked.result()
    if copy is not None:
        yield etcd_voters.alive(copy)


def _require_possible(ctx: JoinContext) -> None:
    """Read the cluster's configuration.

    Raises ValidationError or HostError if this machine cannot become another control plane.
    """
    cluster = ctx.cluster
    if not ctx.control_plane:
        return
    if not cluster.control_plane_endpoint:
        problem = FieldError(
            path=FieldPath() / "controlPlaneEndpoint", type=FieldErrorType.REQUIRED, reason="a further control plane needs it", value=""
        )
        raise ValidationError(
            "the cluster cannot have another control plane: it was created without a controlPlaneEndpoint",
            [problem],
            remedy="set controlPlaneEndpoint in the ConfigMap kube-system/kubeadm-config, once certificates and clients know that address",
        )
    if not ctx.configuration.init.certificate_key:
        _require_authorities(ctx)


def _require_authorities(ctx: JoinContext) -> None:
    """Require the files that control planes share, if there is no key for the uploaded copies."""
    names = ["ca.crt", "sa.key", "front-proxy-ca.crt"] + (["etcd/ca.crt"] if ctx.cluster.etcd.external is None else [])
    missing = [name for name in names if ctx.certificates.read(name) is None]
    if missing:
        raise HostError(
            f"this machine lacks files that all control planes of the cluster share: {', '.join(missing)} in {ctx.layout.pki}",
            remedy="copy it from a control plane, or run `kubewright init phase upload-certs --upload-certs` there and join with --certificate-key",
        )


def _control_plane(ctx: JoinContext, *, user: int) -> Report:
    """Run the checks of a control plane on this machine, which need the cluster's configuration."""
    registration = ctx.configuration.init.node_registration
    more = lists.control_plane_join(
        ctx.cluster,
        ctx.addresses,
        ctx.layout,
        has_certificate_key=bool(ctx.configuration.init.certificate_key),
        resumed=ctx.resumed,
    )
    subject = Subject(host=ctx.host, node=registration, addresses=ctx.addresses, cluster=ctx.cluster, user=user)
    return run_checks(more, subject, ignored=registration.ignore_preflight_errors)


def for_join(configuration: JoinConfiguration, *, host: Host, user: int, resumed: bool = False) -> Report:
    """Run the checks of `join` before it contacts the cluster, without those that need the cluster's configuration.

    If a run is `resumed`, the results of the earlier one are not problems.
    """
    registration, control_plane = configuration.node_registration, configuration.control_plane
    places = addresses(configuration)
    by_token = configuration.discovery.bootstrap_token
    checks = lists.join(
        places,
        host.layout,
        control_plane=control_plane is not None,
        ca_path=authority_path(configuration, host.layout),
        endpoint_host=_host_of(by_token.api_server_endpoint) if by_token is not None else "",
        resumed=resumed,
    )
    subject = Subject(host=host, node=registration, addresses=places, user=user)
    return run_checks(checks, subject, ignored=registration.ignore_preflight_errors)


def _host_of(endpoint: str) -> str:
    return urlsplit(f"//{endpoint}").hostname or ""
