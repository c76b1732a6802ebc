"""The phases `kubelet-start` and `kubelet-wait-bootstrap` (spec/kubeadm.md 8.4, 8.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeconfig import BearerToken as TokenInside
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.apis.kubeconfig.documents import Credentials
from kubewright.apis.machine import url
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import APIError, CertificateError, KubewrightError
from kubewright.base.events import Waited
from kubewright.host.desired import File, Show
from kubewright.kube.credentials import Anonymous, ClientCertificate, Identity
from kubewright.lifecycle import checking
from kubewright.lifecycle.join import identity, registration, signing
from kubewright.lifecycle.steps import kubelet
from kubewright.lifecycle.steps.waiting import until

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

TOPIC: Final = "kubelet-start"
BOOTSTRAP: Final = "bootstrap-kubelet"
USER: Final = "tls-bootstrap-token-user"
_LOOK: Final = 0.05
_REMEDY: Final = (
    "`systemctl status kubelet` and `journalctl -xeu kubelet` tell more; mend what it complains about, then run the same command again"
)
_PATIENCE: Final = 2.0
_HEALTH_ADDRESS: Final = "127.0.0.1"
_HEALTH_PORT: Final = 10248


def start(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Give the kubelet what it asks for its certificate with, its files and the cluster's CA, and start it.

    A kubelet that has its certificate keeps it. Raises APIError where another machine is a Node of this name.
    """
    if registration.is_done(ctx):
        ctx.say(TOPIC, f'The kubelet has its certificate: "{ctx.layout.kubeconfig("kubelet")}" is used')
    else:
        ctx.say(TOPIC, f"Looking whether there is a Node {registration.name(ctx)} already")
        yield registration.require_free(ctx)
        yield _bootstrap_kubeconfig(ctx)
        yield from signing.wait(ctx)
    yield from _authority(ctx)
    yield from kubelet.start(ctx)


def _bootstrap_kubeconfig(ctx: JoinContext) -> Change:
    cluster, found = ctx.configuration.cluster, ctx.found
    document = kubeconfig_document(
        server=server(ctx),
        ca_pem=found.ca_pem,
        cluster_name=cluster.cluster_name,
        user=USER,
        credentials=_credentials(found.identity),
    )
    path = ctx.layout.kubeconfig(BOOTSTRAP)
    change = ctx.host.ensure(File(path=path, content=yaml.dump(document).encode(), mode=0o600, show=Show.SIZE))
    ctx.say(TOPIC, f'Wrote "{path}"')
    return change


def server(ctx: JoinContext) -> str:
    """Return whom the kubelet asks for its certificate.

    A control plane's asks the cluster as well: its own API server is not up yet, and the kubelet would pause for seconds between attempts.
    Where the phase that points it to its own machine later is left out, it is pointed there at once, as with kubeadm. Phases that run one by
    one leave nothing out.
    """
    later = not ctx.control_plane or ctx.runs("wait-control-plane") or ctx.phases == frozenset({"kubelet-start"})
    return ctx.found.server if later else ctx.addresses.api_server


def _credentials(found: Identity) -> Credentials:
    if isinstance(found, ClientCertificate):
        return EmbeddedCertificate(certificate_pem=found.cert_pem, key_pem=found.key_pem)
    if isinstance(found, Anonymous):
        raise CertificateError("nothing proves who this machine is", remedy="give a token with --tls-bootstrap-token")
    return TokenInside(token=found.token)


def _authority(ctx: JoinContext) -> Iterable[Change]:
    """Write the cluster's CA where the kubelet's configuration expects it, unless something is there."""
    path = checking.authority_path(ctx.join, ctx.host.layout)
    if ctx.found.ca_pem is not None and ctx.host.state(path) is None:
        yield ctx.host.ensure(File(path=path, content=ctx.found.ca_pem, mode=0o644, show=Show.SIZE))


def wait_bootstrap(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Wait until the kubelet is healthy and has its certificate. What it asked with is removed afterwards, however this ends."""
    path = ctx.layout.kubeconfig(BOOTSTRAP)
    timeouts = ctx.join.timeouts
    removed = None
    try:
        server = _health_server(ctx)
        if server:
            ctx.say("kubelet-check", f"Waiting for a healthy kubelet at {server}/healthz")
            yield _until(ctx, _healthy(server), within=timeouts.kubelet_health_check.seconds, saying="the kubelet to be healthy")
        ctx.say("kubelet-wait", "Waiting for the kubelet to get its certificate from the cluster")
        yield _until(ctx, lambda: _lacks(ctx), within=timeouts.tls_bootstrap.seconds, saying="the kubelet to get its certificate")
    finally:
        removed = ctx.host.remove(path)
    yield removed


def _until(ctx: JoinContext, condition: Callable[[], str | None], *, within: float, saying: str) -> Waited:
    return until(ctx, condition, saying=saying, blame=(), within=within, every=_LOOK, remedy=_REMEDY)


def _health_server(ctx: JoinContext) -> str:
    """Return where the kubelet answers how it is, '' if it does not."""
    content = ctx.host.read(ctx.layout.kubelet_config)
    found = yaml.load(content, source=str(ctx.layout.kubelet_config)) if content else None
    config = found if isinstance(found, dict) else {}
    port = config.get("healthzPort", _HEALTH_PORT)
    return url(str(config.get("healthzBindAddress") or _HEALTH_ADDRESS), int(port), scheme="http") if port else ""


def _healthy(server: str) -> Callable[[], str | None]:
    from kubewright.http.sync import Transport

    transport = Transport(server)

    def look() -> str | None:
        try:
            answer = transport.request("GET", "/healthz", timeout=_PATIENCE)
        except APIError as error:
            return str(error)
        return None if answer.status == 200 else f"{server}/healthz answers {answer.status}: {answer.body[:200].decode(errors='replace')}"

    return look


def _lacks(ctx: JoinContext) -> str | None:
    try:
        identity.usable(ctx.host, now=ctx.clock.now())
    except KubewrightError as error:
        return str(error)
    return None
