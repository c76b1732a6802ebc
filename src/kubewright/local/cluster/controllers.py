"""The phases of `up` for our own controllers: one more static pod, whose program is the Python that runs us.

With `--controllers kubewright` they replace those of kube-controller-manager; with `--serving-certificates strict` they
approve the serving certificates of kubelets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import kubewright
from kubewright.apis.node_approval import FileRow
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.host.desired import File
from kubewright.lifecycle.steps import cluster_objects, serving_approver
from kubewright.lifecycle.steps.static_pods import MANIFEST_MODE
from kubewright.local.cluster.context import LocalContext
from kubewright.local.programs import PYTHON
from kubewright.manifests import controllers
from kubewright.manifests.pods import Inputs
from kubewright.manifests.rbac import Purpose
from kubewright.pki import kubeconfigs

_PROGRAM: Final = (PYTHON, "-m", "kubewright")
_FLAGS: Final = {"kube-api-qps": "1000", "kube-api-burst": "2000", "leader-elect": "false", "secure-port": "0"}
"""Flags as for kube-controller-manager: no rate limit and no lease, because one process has its own machine.

Its health endpoint is unused.
"""


def only_ours(ctx: LocalContext) -> str | None:
    """Skip the phase if kube-controller-manager runs all controllers."""
    return None if ctx.run.cluster.runs_controllers else "kube-controller-manager approves and signs"


def only_strict(ctx: LocalContext) -> str | None:
    """Skip the phase if kubelets sign their own certificates."""
    return None if ctx.run.cluster.strict else "kubelets sign their own certificates"


def policy(ctx: LocalContext) -> Iterable[Change]:
    """Store the policy of the approver, which lists the nodes of all machines; workers are served at the first one's address."""
    rows = [FileRow(node=machine.name, addresses=(machine.address,)) for machine in ctx.run.cluster.machines]
    yield from serving_approver.policy(ctx.configuration, rows, api=ctx.api, strict_clients=ctx.run.cluster.strict_clients)


def admit(ctx: LocalContext, ids: Mapping[str, str]) -> Iterable[Change]:
    """Write the ids of the tokens with which nodes are about to join into the policy. Workers need no addresses."""
    rows = [FileRow(node=name, tokens=(token_id,)) for name, token_id in ids.items()]
    yield from serving_approver.policy(ctx.configuration, rows, api=ctx.api)


def _purposes(ctx: LocalContext) -> list[Purpose]:
    cluster = ctx.run.cluster
    wanted = {Purpose.CONTROLLERS: cluster.own_controllers, Purpose.SERVING_APPROVER: cluster.strict}
    return [purpose for purpose, is_wanted in wanted.items() if is_wanted]


def static_pod(ctx: LocalContext) -> Iterable[Change]:
    """Write the kubeconfig and the manifest."""
    inputs = Inputs(
        configuration=ctx.configuration,
        layout=ctx.layout,
        addresses=ctx.addresses,
        detected=ctx.detected,
        overrides=_FLAGS,
        external_ca=ctx.external_ca,
    )
    yield kubeconfigs.ensure_kubeconfig(
        ctx.kubeconfigs,
        ctx.certificates,
        controllers.kubeconfig(inputs),
        ctx.issuing,
    )
    where = {"PYTHONPATH": str(Path(kubewright.__file__).parents[1])} if kubewright.__file__ else {}
    pod = controllers.static_pod(inputs, program=_PROGRAM, environment=where, purposes=_purposes(ctx))
    path = ctx.layout.manifest(controllers.NAME)
    yield ctx.host.ensure(File(path=path, content=yaml.dump(pod).encode(), mode=MANIFEST_MODE))


def rights(ctx: LocalContext) -> Iterable[Change]:
    """Create the permissions of the controllers."""
    yield from cluster_objects.apply(ctx.api, controllers.rights(purposes=_purposes(ctx)))
    if ctx.run.cluster.strict:
        yield serving_approver.used_tokens(ctx.api)
