"""Compares the kubelet of `--kubelet FILE` with the API servers of the cluster: it must not be newer than any of them (version skew policy)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError, HostError, WaitTimeout
from kubewright.base.patterns import Pattern
from kubewright.base.versions import Version
from kubewright.kube.server_info import server_version
from kubewright.lifecycle.steps import component_versions
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, read_static_pod
from kubewright.lifecycle.upgrade.planning import versions
from kubewright.lifecycle.upgrade.request import APPLY

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

TOPIC: Final = "upgrade/kubelet"
_VERSION: Final = Pattern(r"v\d+\.\d+\.\d+\S*")


def reported_version(ctx: UpgradeContext, program: str) -> Version:
    """Return the version that a program reports. Raises HostError for one that is not a kubelet."""
    found = _VERSION.search(ctx.host.programs.version(program))
    if found is None:
        raise HostError(f"{program} does not report its version", remedy="pass the program `kubelet` of the version to upgrade to")
    return Version.parse(found[0])


def newer_than_servers(ctx: UpgradeContext) -> Iterator[str]:
    """Yield which API servers will be older than the given kubelet when this control plane has been upgraded.

    `upgrade node` does not count those of other machines, because it waits for them. Raises HostError for a file that is
    not a kubelet, and APIError.
    """
    version, target = reported_version(ctx, ctx.request.kubelet), ctx.cluster.kubernetes_version
    if component_versions.is_older(target, str(version)):
        yield _newer(version, target, "this machine")
    if ctx.request.section == APPLY:
        yield from (_newer(version, text, ", ".join(nodes)) for text, nodes in _older_servers(ctx, version).items())


def require_no_older_server(ctx: UpgradeContext, version: Version) -> None:
    """Raise HostError for a kubelet that is newer than an API server; that of this machine is known from its manifest.

    `upgrade node` waits for the others, because their machines may be upgraded at the same time.
    """
    own = read_static_pod(ctx.host, ctx.host.layout.manifest(API_SERVER))
    if own is not None and component_versions.is_older(present := component_versions.version_of(own.body), str(version)):
        raise _too_new(version, f"v{present}", "this machine")
    if ctx.request.section != APPLY and (older := _older_servers(ctx, version)):
        ctx.say(TOPIC, f"Waiting until the API servers that are older than the kubelet {version} are upgraded: {_shown(older)}")
        with suppress(WaitTimeout):
            ctx.waiter.until(
                lambda: _still_older(ctx, version),
                within=ctx.timeouts.upgrade_manifests.seconds,
                saying="the other API servers to be upgraded",
                at_most=2.0,
            )
    for text, nodes in _older_servers(ctx, version).items():
        raise _too_new(version, text, ", ".join(nodes))


def _older_servers(ctx: UpgradeContext, version: Version) -> dict[str, list[str]]:
    """Return where other API servers of each older version are. Raises APIError."""
    return {text: nodes for text, nodes in _other_servers(ctx).items() if nodes and component_versions.is_older(text, str(version))}


def _still_older(ctx: UpgradeContext, version: Version) -> str | None:
    try:
        return _shown(_older_servers(ctx, version)) or None
    except APIError as error:  # the one that answers may be restarted
        return str(error)


def _shown(servers: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{text} of {', '.join(nodes)}" for text, nodes in servers.items())


def _other_servers(ctx: UpgradeContext) -> dict[str, list[str]]:
    """Return where the other API servers of each version are.

    A kubelet may list neither Nodes nor the pods of others (kube-apiserver v1.36: auth/authorizer/node), so a worker
    asks only the API server that answers it. Without a cluster, it is not known which versions there are.
    """
    if ctx.without_cluster:
        return {}
    if not ctx.control_plane:
        return {str(server_version(ctx.client)): ["the cluster"]}
    found = versions.static_pods(ctx.api, API_SERVER)
    return {text: [node for node in nodes if node != ctx.node_name] for text, nodes in found.items()}


def _too_new(version: Version, server: str, where: str) -> HostError:
    return HostError(_newer(version, server, where), remedy="upgrade all control planes first")


def _newer(version: Version, server: str, where: str) -> str:
    return f"the kubelet {version} is newer than the API server {server} of {where}"
