"""The phases of `up --controllers kubewright`: our controllers as one more static pod, whose program is the Python that runs us."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import kubewright
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.host.desired import File
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import cluster_objects
from kubewright.lifecycle.steps.static_pods import MANIFEST_MODE
from kubewright.local.cluster.context import LocalContext
from kubewright.local.programs import PYTHON
from kubewright.manifests import controllers
from kubewright.manifests.pods import Inputs
from kubewright.pki import kubeconfigs

_PROGRAM: Final = (PYTHON, "-m", "kubewright")
_FLAGS: Final = {"kube-api-qps": "1000", "kube-api-burst": "2000", "leader-elect": "false", "secure-port": "0"}
"""Flags as for kube-controller-manager: no rate limit and no lease, because one process has its own machine.

Its health endpoint is unused.
"""


def only_ours(ctx: LocalContext) -> str | None:
    """Leave the phase out where kube-controller-manager has these controllers."""
    return None if ctx.run.cluster.own_controllers else "kube-controller-manager approves and signs"


def static_pod(ctx: InitContext) -> Iterable[Change]:
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
    pod = controllers.static_pod(inputs, program=_PROGRAM, environment=where)
    path = ctx.layout.manifest(controllers.NAME)
    yield ctx.host.ensure(File(path=path, content=yaml.dump(pod).encode(), mode=MANIFEST_MODE))


def rights(ctx: InitContext) -> Iterable[Change]:
    """Create the permissions of the controllers."""
    yield from cluster_objects.apply(ctx.api, controllers.rights())
