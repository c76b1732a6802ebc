"""The phases that write to the cluster: its configuration, uploaded certificates, labels and taints, bootstrap tokens, cluster-info; and the join command."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kubewright import tokens
from kubewright.apis.kubeadm.serving_certificates import STRICT
from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.base.change import Change, Lifetime
from kubewright.base.durations import HOUR, Duration
from kubewright.base.errors import NotFound
from kubewright.base.plain_text import shell_word
from kubewright.base.records import replace
from kubewright.kube.objects import DesiredObject, Write, ensure_object
from kubewright.kube.resources import CONFIG_MAP, named
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import cluster_objects
from kubewright.lifecycle.steps.announcing import announced
from kubewright.lifecycle.steps.certificates import shared_files
from kubewright.manifests import objects, rbac
from kubewright.pki import pins, specs, store, table
from kubewright.pki.encryption import sealing
from kubewright.tokens import cluster_info, secrets

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI

WITHHELD = "<value withheld>"
_KEY_WARNING = "Anyone with the certificate key can read the cluster's private keys: keep it secret. The encrypted certificates are deleted after two hours."


def upload_kubeadm(ctx: InitContext) -> Iterable[Change]:
    """Store the ClusterConfiguration with the permission to read it.

    Raises ConfigurationChanged if a resumed run finds a cluster that was upgraded since.
    """
    if ctx.bound.resumed and ctx.bound.whole:
        from kubewright.lifecycle.init import downgrades  # most machines are created once

        downgrades.require_no_older_cluster(ctx.api, ctx.configuration)
    yield from ctx.admission
    yield from cluster_objects.kubeadm_config(ctx.configuration, api=ctx.api, say=functools.partial(ctx.say, "upload-config"))


def upload_kubelet(ctx: InitContext) -> Iterable[Change]:
    """Store the kubelet's configuration for joining machines."""
    yield from ctx.admission
    yield from cluster_objects.kubelet_config(ctx.configuration, api=ctx.api, say=functools.partial(ctx.say, "kubelet"))


def upload_certs(ctx: InitContext) -> Iterable[Change]:
    """Store the control plane's certificates, sealed with the certificate key, for two hours.

    Does nothing without --upload-certs.
    """
    if not ctx.request.upload_certs:
        ctx.say("upload-certs", "Skipping phase: use --upload-certs to store the certificates in the cluster")
        return
    yield from ctx.admission
    ctx.say("upload-certs", "Storing the certificates in Secret kubeadm-certs of namespace kube-system")
    owner = BootstrapToken(
        token=tokens.generate(ctx.random).text,
        ttl=Duration(2 * HOUR),
        description="Proxy for managing TTL for the kubeadm-certs secret",
        usages=(),
        groups=(),
    )
    yield ensure_object(ctx.api, DesiredObject(secrets.secret_object(owner, clock=ctx.clock), lifetime=Lifetime.EPHEMERAL))
    stored = ctx.api.get(named("Secret"), secrets.name_of(tokens.parse(owner.token).id), "kube-system")
    key = sealing.parse_key(ctx.certificate_key)
    sealed = {name: sealing.seal(content, key, random=ctx.random) for name, content in _shared_files(ctx).items()}
    metadata = stored["metadata"]
    # A server sets the uid of every object; a plan has no server, and kubeadm's dry run leaves it empty as well.
    secret, *rights = objects.kubeadm_certs(sealed, owner=str(metadata["name"]), owner_uid=str(metadata.get("uid") or ""))
    yield ensure_object(ctx.api, DesiredObject(secret, lifetime=Lifetime.EPHEMERAL))
    yield from cluster_objects.apply(ctx.api, rights)
    ctx.say("upload-certs", f"Using certificate key:\n{WITHHELD if ctx.request.skip_certificate_key_print else ctx.certificate_key}")


def _shared_files(ctx: InitContext) -> Mapping[str, bytes]:
    """Return the files that every control plane needs, by their names in the Secret.

    Source: kubeadm v1.36: phases/copycerts.
    """
    places = shared_files(ctx.cluster, ctx.layout)
    return {name: (ctx.host.read(path) or b"") if path is not None else b"" for name, path in places.items()}


def bootstrap_tokens(ctx: InitContext) -> Iterable[Change]:
    """Create the configured tokens, the permissions of joining machines, and the public cluster-info.

    cluster-info is signed here as well: kube-controller-manager would sign it a second later, and a machine that joins
    right after init would find no signature until then.
    """
    yield from ctx.admission
    wanted = ctx.bootstrap_tokens
    shown = [WITHHELD if ctx.request.skip_token_print else token.token for token in wanted]
    if wanted:
        ctx.say("bootstrap-token", f"Using token: {shown[0]}" if len(shown) == 1 else f"Using tokens: [{' '.join(shown)}]")
    yield from token_secrets(ctx, wanted)
    say = functools.partial(ctx.say, "bootstrap-token")
    yield from cluster_objects.joining(api=ctx.api, say=say, strict_clients=_has_strict_clients(ctx))
    yield from announced(
        ctx.api,
        lambda api: [publish(ctx, wanted, api=api)],
        say=say,
        doing=["Publishing the ConfigMap cluster-info in the namespace kube-public"],
        kept="Using existing ConfigMap cluster-info in the namespace kube-public",
    )
    yield from cluster_objects.apply(ctx.api, rbac.grants(rbac.Purpose.CLUSTER_INFO))


def _has_strict_clients(ctx: InitContext) -> bool:
    """Return whether the cluster's policy approves client certificates. Only a cluster with an approver has one."""
    if ctx.bound.whole and ctx.request.serving_certificates != STRICT:
        return False
    from kubewright.lifecycle.steps import serving_approver  # most clusters have none

    return serving_approver.has_strict_clients(ctx.api)


def token_secrets(ctx: InitContext, tokens: Iterable[BootstrapToken]) -> Iterable[Change]:
    """Create the Secrets of tokens. A token without expiry is durable, the others are not."""
    for token in tokens:
        lifetime = Lifetime.EPHEMERAL if token.ttl or token.expires else Lifetime.DURABLE
        yield ensure_object(ctx.api, DesiredObject(secrets.secret_object(token, clock=ctx.clock), lifetime=lifetime))


def publish(ctx: InitContext, tokens: Iterable[BootstrapToken], *, api: KubeAPI) -> Change:
    """Publish the cluster's address and CA, signed with tokens. Signatures alone are as short-lived as their tokens."""
    server = specs.server(table.Endpoint.CONTROL_PLANE, ctx.configuration, ctx.addresses)
    authority = store.require_authority(ctx.certificates, "ca", wanted=cluster_info.NAME)
    body = cluster_info.config_map(server=server, ca_pem=authority.pem)
    signing = [secrets.parse_secret(secrets.secret_object(token, clock=ctx.clock)) for token in tokens]
    signed = cluster_info.signed(body, signing, now=ctx.clock.now()) or body
    lifetime = Lifetime.EPHEMERAL if _published(ctx) == _data(body).get(cluster_info.KUBECONFIG) else Lifetime.DURABLE
    return ensure_object(api, DesiredObject(signed, write=Write.MUTATE_DATA_KEYS, lifetime=lifetime))


def _published(ctx: InitContext) -> object:
    try:
        found = ctx.api.get(CONFIG_MAP, cluster_info.NAME, cluster_info.NAMESPACE)
    except NotFound:
        return None
    return _data(found).get(cluster_info.KUBECONFIG)


def _data(body: Mapping[str, object]) -> Mapping[str, object]:
    data = body.get("data")
    return data if isinstance(data, Mapping) else {}


def show_join_command(ctx: InitContext) -> Iterable[Change]:
    """Print how other machines join: scripts extract these commands (kubeadm v1.36: cmd/util/join.go)."""
    server = specs.server(table.Endpoint.CONTROL_PLANE, ctx.configuration, ctx.addresses).removeprefix("https://")
    server = shell_word(server, what="the endpoint of the control plane")
    authority = store.require_authority(ctx.certificates, "ca", wanted="the join command")
    hashes = "".join(f"--discovery-token-ca-cert-hash {pin} " for pin in pins.of_bundle(authority.pem))
    admin = shell_word(str(ctx.layout.kubeconfig("admin")), what="the path of admin.conf")
    lines = [
        "Your Kubernetes control plane is up.",
        "",
        "To use it as an ordinary user:",
        "",
        "  mkdir -p $HOME/.kube",
        f"  sudo cp -i {admin} $HOME/.kube/config",
        "  sudo chown $(id -u):$(id -g) $HOME/.kube/config",
        "",
        "As root you can instead run:",
        "",
        f"  export KUBECONFIG={admin}",
        "",
        "Then install a pod network for the cluster.",
        "",
        "Machines join with these commands; the words behind `join` are the same for kubeadm and kubewright. kubewright also takes `--token -` and",
        "`--certificate-key -`, which read standard input, so that no other user of the machine can see them.",
    ]
    for token in ctx.bootstrap_tokens:
        shown = WITHHELD if ctx.request.skip_token_print else token.token
        command = f"kubewright join {server} --token {shown} \\\n\t{hashes}"
        if ctx.cluster.control_plane_endpoint:
            lines += ["", *_before_control_planes(ctx), "", f"  {command}\\\n\t--control-plane {_certificate_key(ctx)}"]
            lines += ["", _KEY_WARNING] if ctx.request.upload_certs else []
        lines += ["", *_before_workers(ctx, command)]
    ctx.report_text("\n".join(lines))
    return ()


def _before_workers(ctx: InitContext, command: str) -> list[str]:
    if ctx.request.client_certificates == STRICT:
        create = "kubewright token create --node NAME --address ADDRESS --print-join-command"
        return ["Each worker machine needs a token of its own; this prints the command to join with it:", "", f"  {create}"]
    return ["Worker machines join with, as root:", "", command]


def _before_control_planes(ctx: InitContext) -> list[str]:
    if ctx.request.upload_certs:
        return ["Further control planes join with, as root:"]
    return ["Join additional control planes with this command, as root, after copying the CAs and the service account keys to them:"]


def _certificate_key(ctx: InitContext) -> str:
    if not ctx.request.upload_certs:
        return ""
    return f"--certificate-key {WITHHELD if ctx.request.skip_certificate_key_print else ctx.certificate_key}"


def short_lived(token: str, *, seconds: int) -> BootstrapToken:
    """Return a short-lived token for imminent joins."""
    return replace(BootstrapToken(), token=token, ttl=Duration.of_seconds(seconds))
