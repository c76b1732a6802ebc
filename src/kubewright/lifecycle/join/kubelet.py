"""The phases `kubelet-start` and `kubelet-wait-bootstrap`: the kubelet's Node, its certificate, and its server.

Source: kubeadm v1.36: cmd/phases/join/kubelet.go.

The Node of another machine is not taken over.

A kubelet that waits for its certificate continues unauthenticated; the API server denies it access to its Node, and it
retries after pauses that double: in a cluster whose kube-controller-manager is just starting, it gets its Node seconds
after its certificate. Therefore it is started when earlier requests of others have been answered.

kubeadm makes the kubelet of a control plane request its certificate from its own machine's API server
(ControlPlaneKubeletLocalMode): that is not up then, and the kubelet waits for seconds between its attempts. Here, in a
run that also waits for the control plane, the kubelet uses the server from discovery, and is switched to its own
machine once that has a server. Phases that run one by one behave as in kubeadm.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubeconfig import BearerToken as TokenInside
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.apis.kubeconfig.documents import Credentials
from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, CertificateError, KubewrightError, NotFound, WaitTimeout
from kubewright.base.events import Waited
from kubewright.host.desired import Directory, File, Service, Show
from kubewright.kube.core import Object
from kubewright.kube.credentials import Anonymous, ClientCertificate, Identity
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, NODE
from kubewright.lifecycle.diagnosis.cluster import PATIENCE, BootstrapLook
from kubewright.lifecycle.join import configuration, discovery
from kubewright.lifecycle.join.request import authority_path
from kubewright.lifecycle.steps import kubelet
from kubewright.lifecycle.steps.health import LOOK, HealthEndpoint
from kubewright.lifecycle.steps.kubelet import SERVICE
from kubewright.manifests import kubelet as manifests
from kubewright.manifests import patches

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import NodeRegistration
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.join.context import JoinContext

_OVERRIDE: Final = "hostname-override"
_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
_LOOKED_AT: Final = 50
"""How many requests are read: in a large cluster there are thousands, and if there is no signer, any of them shows it."""
_SLOW, _OLD = 1.0, 15.0
"""Seconds. A request that is answered sooner shows nothing, and one that waits longer may wait for manual approval."""
_SIGNING: Final = 15.0
TOPIC: Final = "kubelet-start"
BOOTSTRAP: Final = "bootstrap-kubelet"
USER: Final = "tls-bootstrap-token-user"


def start(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Write the kubelet's bootstrap credentials, its files and the cluster's CA, and start it.

    A kubelet that has its certificate keeps it. Raises APIError if another machine has a Node of this name. The
    directory of static pods is created on workers too, as the kubelet's package does: without it, the kubelet logs an
    error every second.
    """
    if is_bootstrapped(ctx):
        ctx.say(TOPIC, f'The kubelet has its certificate: "{ctx.layout.kubeconfig("kubelet")}" is used')
    else:
        ctx.say(TOPIC, f"Checking whether a Node {node_name(ctx)} exists already")
        yield require_free_name(ctx)
        ctx.bound.begin(ctx.layout, authority_path(ctx.join, ctx.host.layout), ctx.layout.kubeconfig(BOOTSTRAP))
        yield _bootstrap_kubeconfig(ctx)
        yield from wait_for_signer(ctx)
    yield from _authority(ctx)
    files = manifests.files(
        ctx.configuration,
        ctx.layout,
        ctx.detected,
        patch=lambda body: ctx.patched(patches.KUBELET, body),
        worker=not ctx.control_plane,
    )
    yield ctx.host.ensure(Directory(path=ctx.layout.manifests, mode=kubelet.PRIVATE))
    yield from kubelet.start(
        files,
        host=ctx.host,
        layout=ctx.layout,
        stand_ins=ctx.bound.kubelet_makes,
        reporter=ctx.reporter,
        credentials=(ctx.layout.kubeconfig(BOOTSTRAP),),
    )


def _bootstrap_kubeconfig(ctx: JoinContext) -> Change:
    introduced = ctx.introduced
    document = kubeconfig_document(
        server=server(ctx),
        ca_pem=introduced.ca_pem,
        cluster_name=ctx.configuration.cluster.cluster_name,
        user=USER,
        credentials=_credentials(introduced.identity),
    )
    path = ctx.layout.kubeconfig(BOOTSTRAP)
    change = ctx.host.ensure(File(path=path, content=yaml.dump(document).encode(), mode=0o600, show=Show.SIZE))
    ctx.say(TOPIC, f'{"Wrote" if change else "Using existing"} "{path}"')
    return change


def server(ctx: JoinContext) -> str:
    """Return the server from which the kubelet requests its certificate.

    It is the cluster's also on a control plane, if this run switches the kubelet to its own machine later: its own API
    server is not up yet, and the kubelet would pause for seconds between attempts. Otherwise its own server is used at
    once, as in kubeadm.
    """
    later = not ctx.control_plane or ctx.runs("wait-control-plane")
    return ctx.introduced.server if later else ctx.addresses.api_server


def _credentials(found: Identity) -> Credentials:
    if isinstance(found, ClientCertificate):
        return EmbeddedCertificate(certificate_pem=found.cert_pem, key_pem=found.key_pem)
    if isinstance(found, Anonymous):
        raise CertificateError("this machine has no credentials", remedy="pass a token with --tls-bootstrap-token")
    return TokenInside(token=found.token)


def _authority(ctx: JoinContext) -> Iterable[Change]:
    """Write the cluster's CA where the kubelet's configuration expects it, unless a file exists there."""
    path = authority_path(ctx.join, ctx.host.layout)
    if ctx.found.ca_pem is not None and ctx.host.state(path) is None:
        yield ctx.host.ensure(File(path=path, content=ctx.found.ca_pem, mode=0o644, show=Show.SIZE))


def wait_bootstrap(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Wait until the kubelet is healthy and has its certificate.

    Its bootstrap credentials are removed afterwards in any case.
    """
    path = ctx.layout.kubeconfig(BOOTSTRAP)
    timeouts = ctx.join.timeouts
    removed = None
    try:
        server = kubelet.health_server(ctx.host)
        if server:
            healthy, limit = ctx.bound.connections.keep(HealthEndpoint(server, "/healthz")), timeouts.kubelet_health_check
            yield ctx.health_lines.kubelet(
                server, lambda: _until(ctx, healthy, within=limit.seconds, saying="the kubelet to be healthy"), within=limit
            )
        ctx.say("kubelet-wait", "Waiting for the kubelet to get its certificate from the cluster")
        with ctx.health_lines.kubelet_advice():
            yield _until(ctx, lambda: _lacks(ctx), within=timeouts.tls_bootstrap.seconds, saying="the kubelet to get its certificate")
    finally:
        removed = ctx.host.remove(path)
    yield removed


def _until(ctx: JoinContext, condition: Callable[[], str | None], *, within: float, saying: str) -> Waited:
    bootstrap = BootstrapLook(_name(ctx.join.node_registration), connect=lambda: _as_the_kubelet(ctx), clock=ctx.clock)
    return ctx.components.until(
        condition, saying=saying, blame=(), within=within, every=kubelet.LOOK, remedy=kubelet.FIX, bootstrap=bootstrap
    )


def _as_the_kubelet(ctx: JoinContext) -> KubeAPI:
    """Return a client with the kubelet's bootstrap credentials. Raises KubewrightError if they are missing."""
    access = load_access(ctx.layout.kubeconfig(BOOTSTRAP), read=ctx.host.read)
    return ctx.bound.connections.kube(access, timeout=PATIENCE)


def _lacks(ctx: JoinContext) -> str | None:
    try:
        discovery.require_node_access(ctx.host, now=ctx.clock.now())
    except KubewrightError as error:
        return str(error)
    return None


def use_local_server(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Set this machine's API server in kubelet.conf, and restart the kubelet with it.

    The kubelet is stopped first: a run that is killed in between leaves a stopped one, which the next join notices and
    starts.
    """
    path = ctx.layout.kubeconfig("kubelet")
    content = ctx.host.read(path)
    moved = kubelet.with_server(content, ctx.addresses.api_server) if content else None
    if moved is None:
        return
    runs = ctx.host.service(SERVICE) is not None
    ctx.say(TOPIC, f"{'Starting the kubelet again, with' if runs else 'Pointing the kubelet to'} the API server of this machine")
    if runs:
        yield ctx.host.ensure(Service(name=SERVICE, running=False))
    yield ctx.host.ensure(File(path=path, content=moved, mode=0o600))
    if runs:
        yield ctx.host.ensure(Service(name=SERVICE, running=True))


def node_name(ctx: JoinContext) -> str:
    """Return the name with which the kubelet will register."""
    return _name(ctx.configuration.init.node_registration)


def _name(registration: NodeRegistration) -> str:
    """Return the name: an argument takes precedence over the configuration."""
    given = [arg.value for arg in registration.kubelet_extra_args if arg.name == _OVERRIDE]
    return given[-1] if given else registration.name


def is_bootstrapped(ctx: JoinContext) -> bool:
    """Return whether an earlier run of this join has got as far as the kubelet's certificate."""
    return ctx.resumed and discovery.node_access(ctx.host, now=ctx.clock.now()) is not None


def find_node(ctx: JoinContext) -> Object | None:
    """Read the Node; None if there is none. Raises APIError if it cannot be read."""
    try:
        return configuration.patiently(ctx, lambda: ctx.bootstrap.get(NODE, node_name(ctx)))
    except NotFound:
        return None


def require_free_name(ctx: JoinContext) -> Change:
    """Return the change for the kubelet's Node.

    An existing one is taken over if it is not Ready, or is certainly this machine's own. Raises APIError for another
    one that is Ready.
    """
    target = f"Node {node_name(ctx)}"
    if ctx.registered is None:
        return Change(target=target, action=Action.CREATE, reason="the kubelet registers it")
    conditions = (ctx.registered.get("status") or {}).get("conditions") or ()
    if not ctx.owns_node and any(row.get("type") == "Ready" and row.get("status") == "True" for row in conditions):
        raise APIError(
            f"a Node with the name {node_name(ctx)} exists in the cluster and is Ready",
            remedy=f"give this machine another name (--node-name), or delete the old one with `kubectl delete node {node_name(ctx)}`",
        )
    return Change(target=target, action=Action.NONE)


def wait_for_signer(ctx: JoinContext) -> Iterable[Waited]:
    """Wait, at most for seconds, while recent requests of kubelets are unanswered; not at all if they cannot be read.

    The messages of this machine's kubelet do not count: it has no configuration yet, and a package may start it
    repeatedly without success.
    """
    with suppress(WaitTimeout):
        yield ctx.waiter.until(
            lambda: _unanswered(ctx), within=_SIGNING, saying="the cluster to sign certificates", every=LOOK, at_most=LOOK
        )


def _unanswered(ctx: JoinContext) -> str | None:
    path = f"{CERTIFICATE_SIGNING_REQUEST.path()}?fieldSelector=spec.signerName%3D{_SIGNER}&limit={_LOOKED_AT}"
    try:
        answer = ctx.bootstrap.raw("GET", path)
    except APIError:  # whatever it is, the kubelet will meet it too
        return None
    if answer.status != 200:
        return None
    now = ctx.clock.now()
    try:
        waiting = [one for one in json.loads(answer.body)["items"] if not one.get("status") and _SLOW <= _age(one, now) <= _OLD]
    except (ValueError, LookupError, TypeError, AttributeError):  # not an API server's list
        return None
    return f"{len(waiting)} requests for a kubelet's certificate wait for an answer" if waiting else None


def _age(request: dict[str, Any], now: datetime) -> float:
    """Return the age of a request in seconds. If a clock is wrong, it is out of range, and the request is not waited for."""
    return (now - datetime.fromisoformat(request["metadata"]["creationTimestamp"])).total_seconds()
