"""The phases `etcd/local` and `control-plane/*`: static pod manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubewright.apis.kubeadm import features
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.host.desired import Directory, File
from kubewright.lifecycle.context import MachineContext
from kubewright.lifecycle.steps import rootless
from kubewright.manifests import static_pods

MANIFEST_MODE = 0o600
PRIVATE = 0o700
NO_FLAGS: Final[Mapping[str, str]] = {}


def etcd(ctx: MachineContext) -> Iterable[Change]:
    """Make etcd's data directory and write its manifest."""
    ctx.say("etcd", f'Creating the static pod manifest of local etcd in "{ctx.layout.manifests}"')
    yield ctx.host.ensure(Directory(path=ctx.layout.etcd_data, mode=PRIVATE))
    yield from write(ctx, "etcd")


def manifest_directory(ctx: MachineContext) -> Iterable[Change]:
    """Say where manifests go, and make the directory: a kubelet that starts without it looks again only after twenty seconds.

    Without root, it comes with the first manifest, as nothing must be made where the users of the components cannot be.
    """
    ctx.say("control-plane", f'Using manifest directory "{ctx.layout.manifests}"')
    if not features.enabled(ctx.cluster, features.ROOTLESS):
        yield ctx.host.ensure(Directory(path=ctx.layout.manifests, mode=PRIVATE))


def component(name: str) -> Callable[[MachineContext], Iterable[Change]]:
    """Return the phase of a control plane component."""

    def run(ctx: MachineContext) -> Iterable[Change]:
        ctx.say("control-plane", f'Creating the static pod manifest of "{name}"')
        yield from write(ctx, name)

    return run


def write(ctx: MachineContext, name: str, *, more: Mapping[str, str] = NO_FLAGS) -> Iterable[Change]:
    """Write the manifest of a component, now or in its turn. `more` are flags that only this run knows."""
    pod = rendered(ctx, name, more=more)
    hardened = yield from rootless.harden(ctx, name, pod)
    patched = ctx.patched(name, hardened)
    yield ctx.host.ensure(Directory(path=ctx.layout.manifests, mode=PRIVATE))
    manifest = File(path=ctx.layout.manifest(name), content=yaml.dump(patched).encode(), mode=MANIFEST_MODE)
    if not ctx.turns.take(name, manifest):
        yield ctx.host.ensure(manifest)


def rendered(ctx: MachineContext, name: str, *, more: Mapping[str, str] = NO_FLAGS) -> dict[str, Any]:
    """Return the static pod of a component, as it is before patches."""
    return static_pods.render(
        name,
        ctx.configuration,
        ctx.layout,
        ctx.addresses,
        ctx.detected,
        overrides={**ctx.overrides(name), **more},
        external_ca=ctx.external_ca,
    )
