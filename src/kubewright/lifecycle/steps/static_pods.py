"""The phases `etcd/local` and `control-plane/*`: static pod manifests.

With the feature gate RootlessControlPlane also the users, owners of files and security contexts of their components (spec/kubeadm.md 6.8).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final

from kubewright.apis.kubeadm import features
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.host.accounts import find_accounts
from kubewright.host.desired import Directory, File
from kubewright.lifecycle.context import MachineContext
from kubewright.manifests import rootless, static_pods

Body = dict[str, Any]
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
    """Write the manifest of a component, now or when it may start. `more` are flags that only this run knows."""
    pod = rendered(ctx, name, more=more)
    hardened = yield from harden(ctx, name, pod)
    patched = ctx.patched(name, hardened)
    yield ctx.host.ensure(Directory(path=ctx.layout.manifests, mode=PRIVATE))
    manifest = File(path=ctx.layout.manifest(name), content=yaml.dump(patched).encode(), mode=MANIFEST_MODE)
    if not ctx.bound.manifests.take(name, manifest):
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


def harden(ctx: MachineContext, component: str, pod: Body) -> Generator[Change, None, Body]:
    """Yield what is done for a component that does not run as root, and return its pod; the same one without the gate.

    Where the users are only told and not made, as in a dry run, there are no numbers, and the pod stays as it is.
    Raises HostError for accounts that do not fit, and for files that are not there.
    """
    if not features.enabled(ctx.cluster, features.ROOTLESS):
        return pod
    wanted = rootless.accounts(ctx.layout)
    yield ctx.host.ensure(wanted)
    ids = find_accounts(ctx.host, ctx.layout.etc, wanted)
    topic = "etcd" if component == "etcd" else "control-plane"
    if ids is None:
        ctx.say(topic, f'Would update the static pod manifest of "{component}" to run as non-root')
        return pod
    inputs = rootless.Inputs(layout=ctx.layout, local_etcd=ctx.cluster.etcd.external is None, external_ca=ctx.external_ca)
    for owned in rootless.owners(component, inputs, ids):
        yield ctx.host.ensure(owned)
    user = rootless.ROWS[component].user
    ctx.say(topic, f'"{component}" runs as the user {user} ({ids.users[user]})')
    return rootless.hardened(component, pod, ids)
