"""Manual changes of the static pods of this machine, which an upgrade does not keep: they are shown before the confirmation.

Each manifest is compared with the one rendered from the configuration, the present version and the patches of the last
run. kubeadm replaces it without a message.
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base import yaml
from kubewright.base.events import SilentReporter
from kubewright.base.masking import mask
from kubewright.base.records import replace
from kubewright.host.overlay import OverlayHost
from kubewright.lifecycle import kept_patches
from kubewright.lifecycle.steps import static_pods
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.lifecycle.upgrade.control_plane import phase

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

TOPIC: Final = "upgrade/manifests"
_FIRST_START: Final = "--initial-cluster"


def show(ctx: UpgradeContext) -> None:
    """Report the changes that are lost as diffs, with secrets masked."""
    for path, diff in _found(ctx):
        text = f'The changes that were made to "{path}" by hand are not kept, except in a copy of the file; patches (--patches) would be:'
        ctx.say(TOPIC, f"{text}\n{diff.rstrip()}")


def _found(ctx: UpgradeContext) -> Iterator[tuple[str, str]]:
    version = phase.version_of(ctx.host.read(ctx.host.layout.manifest(API_SERVER)) or b"")
    if not version:
        return
    before = _at(ctx, f"v{version}")
    for name, old in phase.present(before):
        if not old:
            continue
        path = str(ctx.host.layout.manifest(name))
        rendered, found = (_plain(one, path) for one in (_returned(phase.rendered(before, name)), old))
        if not static_pods.same_pod(rendered.encode(), found.encode()):
            given, there = (mask(text).splitlines(keepends=True) for text in (rendered, found))
            yield path, "".join(difflib.unified_diff(given, there, "what the configuration and the patches give", path))


def _plain(manifest: bytes, path: str) -> str:
    """Return a manifest in canonical form, without values that depend on the run that wrote it.

    These are the arguments for the first start of etcd, and the failure threshold of startup probes, which follows a
    timeout of `init`.
    """
    pod = yaml.load(manifest, source=path)
    spec = pod.get("spec") if isinstance(pod, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for container in filter(lambda one: isinstance(one, dict), containers if isinstance(containers, list) else ()):
        if isinstance(container.get("startupProbe"), dict):
            container["startupProbe"].pop("failureThreshold", None)
        if isinstance(container.get("command"), list):
            container["command"] = [one for one in container["command"] if not str(one).startswith(_FIRST_START)]
    return yaml.dump(pod)


def _at(ctx: UpgradeContext, version: str) -> UpgradeContext:
    """Return the context of a run with another version and the patches of the last run that neither writes nor reports."""
    init = replace(ctx.task.init, patches_directory=kept_patches.chosen(ctx.host, ""))
    bound = replace(ctx.bound, host=OverlayHost(ctx.host), reporter=SilentReporter())
    return replace(ctx, bound=bound, task=replace(ctx.task, version=version, init=init))


def _returned(steps: Generator[object, None, bytes]) -> bytes:
    """Exhaust a generator and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)
