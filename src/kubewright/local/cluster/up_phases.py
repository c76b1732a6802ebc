"""The tree of `up`: init's phases, with the joins of nodes at their place."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kubewright import tokens
from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.apis.kubeadm.versions import component_image
from kubewright.base.change import Action, Change, Lifetime
from kubewright.base.errors import APIError, NotFound, Unreachable
from kubewright.base.events import Waited
from kubewright.base.records import replace
from kubewright.base.wait import retry
from kubewright.http import tls
from kubewright.kube.objects import remove_object
from kubewright.kube.resources import named
from kubewright.lifecycle.init import cluster, phases
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps.health import api_server
from kubewright.local.cluster.context import JoinCredentials, LocalContext
from kubewright.local.programs import COMPONENTS
from kubewright.pki import pins, specs, table
from kubewright.tokens import secrets
from kubewright.workflow.phases import Phase, Phases, Step

TOKEN_SECONDS: Final = 900
"""The lifetime of a join token if `up` is killed before it removes it, and never run again: then kube-controller-manager removes it."""

TOKEN_PURPOSE: Final = "kubewright up: for the joining nodes"  # noqa: S105 - a purpose, not a password
"""The description of such a token, by which a later run recognizes it."""

CERTIFICATES: Final = "kubeadm-certs"
"""The Secret of uploaded certificates."""

BEGUN_WITHIN: Final = 120.0
"""Seconds after which a daemon without nodes has a problem: it takes some hundredths once the API server listens."""

REGISTERED: Final = frozenset({"WaitingForPodRange", "Ready", "NotReady"})
"""The states of an agent that has seen its Node."""

_LEAVING: Final = "kubewright.local.cluster.control_planes"
_OURS: Final = "kubewright.local.cluster.controllers"
_HANDSHAKE: Final = 0.5
"""Seconds after which a handshake is aborted, so that a component that dies is noticed."""
_ASK: Final = 0.5
"""Seconds that the daemon waits for its nodes before it answers: frequent requests would take processor time from the nodes."""
_ASKED: Final = 3
"""How often a request to a daemon that answered recently is tried: on a slow machine one answer may be late."""


def images(ctx: InitContext) -> Iterable[Change]:
    """Require the programs of the static pods; images of simulated pods need not exist."""
    for component in COMPONENTS:
        yield ctx.host.runtime.pull(component_image(ctx.cluster, component))


def serving(ctx: InitContext) -> Iterable[Waited]:
    """Wait until the API server serves, with a handshake only: loading a client would take processor time from its start."""
    address, port = ctx.addresses.advertise, ctx.addresses.ports.api_server

    def serves() -> str | None:
        return None if tls.serves(address, port, within=_HANDSHAKE) else f"nothing listens at port {port} of {address} yet"

    yield ctx.components.until(serves, saying="the API server to serve", blame=("kube-apiserver", "etcd"))


def end_back_offs(ctx: LocalContext) -> Iterable[Change]:
    """Make failed components start again at once, now that all files exist."""
    ctx.run.daemon.retry()
    return ()


def join_nodes(ctx: LocalContext) -> Iterable[Step]:
    """Make new nodes join, with a token of their own; remove surplus nodes; restore those whose Node was deleted."""
    within = min(ctx.run.within, BEGUN_WITHIN)
    yield ctx.waiter.until(lambda: _unknown(ctx), within=within, saying="the daemon to know its nodes", every=0.01, at_most=0.05)
    wanted = ctx.run.cluster.workers
    nodes = retry(ctx.control.status, clock=ctx.clock, on=Unreachable, attempts=_ASKED)["nodes"]
    agents = {row["name"]: row["phase"] for row in nodes["list"]}
    there = {str(node["metadata"]["name"]) for node in ctx.api.list(named("Node"))}
    # An interrupted run may have started the joins of nodes that are still outside: its token may be gone.
    fresh = [name for name in wanted if name not in agents or name in nodes["outside"]]
    surplus = sorted(name for name in {*agents, *there} if ctx.run.cluster.is_worker(name) and name not in wanted)
    if surplus:
        ctx.control.leave(nodes=surplus)
        for name in surplus:
            yield remove_object(ctx.api, named("Node"), name)
    lost = sorted(name for name, phase in agents.items() if phase in REGISTERED and name not in {*there, *surplus})
    if lost:
        ctx.control.restart(nodes=lost)
        for name in lost:
            yield Change(target=f"node {name}", action=Action.CREATE, reason="its Node was deleted")
    yield from _start_joins(ctx, fresh, there=there)


def _start_joins(local: LocalContext, fresh: Sequence[str], *, there: Collection[str]) -> Iterable[Step]:
    """Start the joins of new workers and of further control planes, which are repaired in any case. `there` are the existing Nodes."""
    planes = local.joins.newcomers if local.joins is not None else []
    credentials = None
    if fresh or planes:
        chosen = _join_tokens(local, [*fresh, *planes])
        made = list({token.token: token for token in chosen.values()}.values())
        if local.run.cluster.strict_clients:
            yield from _admitted(local, chosen, there=there)
        yield from cluster.token_secrets(local, made)
        yield cluster.publish(local, [*local.configuration.init.bootstrap_tokens, *made], api=local.api)
        credentials = JoinCredentials(
            server=specs.server(table.Endpoint.CONTROL_PLANE, local.configuration, local.addresses),
            tokens={name: token.token for name, token in chosen.items()},
            pins=tuple(str(pin) for pin in pins.of_bundle(local.certificates.read("ca.crt") or b"")),
            certificate_key=local.certificate_key if planes else "",
        )
    if fresh and credentials is not None:
        for token in dict.fromkeys(credentials.tokens[name] for name in fresh):
            nodes = [name for name in fresh if credentials.tokens[name] == token]
            local.control.join(nodes=nodes, server=credentials.server, token=token, pins=credentials.pins)
        for name in fresh:
            yield Change(target=f"node {name}", action=Action.CREATE, reason="joins with a bootstrap token")
    if planes:
        yield from cluster.upload_certs(local)
    if local.joins is not None:
        local.joins.start(credentials, local.configuration)


def _admitted(local: LocalContext, chosen: Mapping[str, BootstrapToken], *, there: Collection[str]) -> Iterable[Change]:
    """Write the tokens into the policy, and free the names of machines that have lost their keys: names of Nodes are taken."""
    from kubewright.local.cluster import controllers  # most clusters leave it to kube-controller-manager

    for name in sorted(set(chosen) & set(there)):
        yield remove_object(local.api, named("Node"), name)
    yield from controllers.admit(local, {name: tokens.parse(token.token).id for name, token in chosen.items()})


def _join_tokens(local: LocalContext, names: Sequence[str]) -> dict[str, BootstrapToken]:
    """Return the token of each node: the same one for all, unless each node needs its own."""

    def token() -> BootstrapToken:
        return replace(cluster.short_lived(tokens.generate(local.random).text, seconds=TOKEN_SECONDS), description=TOKEN_PURPOSE)

    if local.run.cluster.strict_clients:
        return {name: token() for name in names}
    return dict.fromkeys(names, token())


def joined(ctx: LocalContext) -> Iterable[Step]:
    """Wait until the further control planes have joined."""
    assert ctx.joins is not None
    yield from ctx.joins.finish()
    ctx.mark("controlPlanesReady")


def only_joins(ctx: LocalContext) -> str | None:
    """Skip the phase if there is only one control plane."""
    return None if ctx.joins is not None else "there are no further control planes"


def only_leaving(ctx: LocalContext) -> str | None:
    """Skip the phase if no machine leaves."""
    return None if ctx.run.cluster.leaving else "no control plane leaves"


def only_free_leases(ctx: LocalContext) -> str | None:
    """Skip the phase if the holders of the leases are running, or there are no leases."""
    return None if ctx.run.free_leases else "the holders of the leases are running"


def _unknown(local: LocalContext) -> str | None:
    """Wait until a new daemon has found the nodes that joined before, which need no token."""
    try:
        nodes = local.control.nodes(within=0)
    except Unreachable as error:
        return str(error)
    return None if nodes.get("begun") else f"it has just been started{nodes.get('reason', '')}"


def api_ready(ctx: LocalContext) -> Iterable[Waited]:
    """Wait until the API server is ready, and record the time."""
    yield api_server(ctx.components, probe=ctx.probe, manifests=ctx.bound.manifests)
    ctx.mark("apiReady")


def nodes_ready(ctx: LocalContext) -> Iterable[Change | Waited]:
    """Wait until all nodes are Ready and pods can be created, then remove the join token."""

    def ready() -> str | None:
        try:
            nodes = ctx.control.nodes(within=_ASK)
        except Unreachable as error:
            return str(error)
        if nodes["ready"] < nodes["total"] or nodes["total"] < ctx.run.cluster.total:
            return f"{nodes['ready']} of {ctx.run.cluster.total} are ready{nodes.get('reason', '')}"
        return None

    yield ctx.waiter.until(ready, within=ctx.run.within, saying="all nodes to be ready", every=0.01, at_most=0.01)
    yield ctx.waiter.until(
        lambda: _service_account(ctx), within=ctx.run.within, saying="the default service account", every=0.02, at_most=0.1
    )
    yield from remove_tokens(ctx)
    ctx.mark("nodesReady")


def remove_tokens(ctx: LocalContext) -> Iterable[Change]:
    """Remove the join tokens of this and of killed runs, and the certificates that were uploaded for them."""
    purpose = base64.b64encode(TOKEN_PURPOSE.encode()).decode()
    for secret in ctx.api.list(named("Secret"), secrets.NAMESPACE, field_selector=f"type={secrets.TYPE}"):
        if secret.get("data", {}).get("description") == purpose:
            yield _remove_secret(ctx, secret["metadata"]["name"])
    if ctx.joins is not None:
        yield from _remove_certificates(ctx)


def _remove_certificates(ctx: InitContext) -> Iterable[Change]:
    """Remove the uploaded certificates, and the token that owns them for two hours."""
    try:
        found = ctx.api.get(named("Secret"), CERTIFICATES, secrets.NAMESPACE)
    except NotFound:
        return
    for owner in found["metadata"].get("ownerReferences", ()):
        yield _remove_secret(ctx, owner["name"])
    yield _remove_secret(ctx, CERTIFICATES)


def _remove_secret(ctx: InitContext, name: str) -> Change:
    change = remove_object(ctx.api, named("Secret"), name, secrets.NAMESPACE)
    return Change(target=change.target, action=change.action, lifetime=Lifetime.EPHEMERAL)


def _service_account(ctx: InitContext) -> str | None:
    try:
        ctx.probe.get(named("ServiceAccount"), "default", "default")
    except NotFound:
        return "kube-controller-manager has not created it yet"
    except APIError as error:
        return str(error)
    return None


UP_PHASES: Final[Phases[LocalContext]] = Phases(
    Phase("preflight", "Require the programs of the control plane", run=images),
    phases.CERTS,
    phases.KUBECONFIG,
    phases.ETCD,
    phases.CONTROL_PLANE,
    Phase("controllers", "Write the manifest of our controllers", run=f"{_OURS}:static_pod", condition=f"{_OURS}:only_ours", hidden=True),
    phases.KUBELET_START,
    Phase("retry", "Start components in back-off at once", run=end_back_offs, hidden=True),
    Phase("serve", "Wait until the API server serves", run=serving, hidden=True),
    phases.WAIT,
    Phase("free-leases", "Free leases that are no longer held", run=f"{_LEAVING}:free_leases", condition=only_free_leases, hidden=True),
    Phase("leave", "Remove surplus control planes", run=f"{_LEAVING}:leave", condition=only_leaving, hidden=True),
    Phase(
        "controllers-rights", "Grant the controllers their permissions", run=f"{_OURS}:rights", condition=f"{_OURS}:only_ours", hidden=True
    ),
    phases.UPLOAD_CONFIG,
    Phase(
        "serving-policy", "Store the policy of serving certificates", run=f"{_OURS}:policy", condition=f"{_OURS}:only_strict", hidden=True
    ),
    phases.BOOTSTRAP_TOKEN,
    Phase("join-nodes", "Let the other nodes join", run=join_nodes, hidden=True),
    phases.MARK,
    phases.KUBELET_FINALIZE,
    Phase("api-ready", "Wait until the API server is ready", run=api_ready, hidden=True),
    Phase("joined", "Wait until the further control planes have joined", run=joined, condition=only_joins, hidden=True),
    Phase("nodes-ready", "Wait until all nodes are ready", run=nodes_ready, hidden=True),
    phases.ADDON,
    phases.CHECK,
)
