"""The feature gate RootlessControlPlane in the phases of static pods: users, owners of files, security contexts (spec/kubeadm.md 6.8)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kubewright.apis.kubeadm import features
from kubewright.base.change import Change
from kubewright.host.accounts import find_accounts
from kubewright.lifecycle.context import MachineContext
from kubewright.manifests import rootless

Body = dict[str, Any]


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
