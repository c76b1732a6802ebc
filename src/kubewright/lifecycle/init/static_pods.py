"""The phases `etcd/local` and `control-plane/*`: static pod manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.host.desired import Directory, File
from kubewright.lifecycle.init import rootless
from kubewright.lifecycle.init.context import InitContext
from kubewright.manifests import static_pods

MANIFEST_MODE = 0o600
PRIVATE = 0o700


def etcd(ctx: InitContext) -> Iterable[Change]:
    """Make etcd's data directory and write its manifest."""
    ctx.say("etcd", f'Creating the static pod manifest of local etcd in "{ctx.layout.manifests}"')
    yield ctx.host.ensure(Directory(path=ctx.layout.etcd_data, mode=PRIVATE))
    yield from _write(ctx, "etcd")


def manifest_directory(ctx: InitContext) -> Iterable[Change]:
    """Say where manifests go."""
    ctx.say("control-plane", f'Using manifest directory "{ctx.layout.manifests}"')
    return ()


def component(name: str) -> Callable[[InitContext], Iterable[Change]]:
    """Return the phase of a control plane component."""

    def run(ctx: InitContext) -> Iterable[Change]:
        ctx.say("control-plane", f'Creating the static pod manifest of "{name}"')
        yield from _write(ctx, name)

    return run


def _write(ctx: InitContext, name: str) -> Iterable[Change]:
    pod = static_pods.render(
        name,
        ctx.configuration,
        ctx.layout,
        ctx.addresses,
        ctx.detected,
        overrides=ctx.overrides(name),
        external_ca=ctx.external_ca,
    )
    hardened = yield from rootless.harden(ctx, name, pod)
    patched = ctx.patched(name, hardened)
    yield ctx.host.ensure(Directory(path=ctx.layout.manifests, mode=PRIVATE))
    yield ctx.host.ensure(File(path=ctx.layout.manifest(name), content=yaml.dump(patched).encode(), mode=MANIFEST_MODE))
