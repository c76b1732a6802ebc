"""What somebody has changed in the static pods of this machine, which an upgrade does not keep: it is shown before the question.

A manifest is compared with what the configuration, the present version and the patches of the last run give. kubeadm replaces it without a word.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base import yaml
from kubewright.base.events import SilentReporter
from kubewright.base.records import replace
from kubewright.host.decisions import masked_diff
from kubewright.host.overlay import OverlayHost
from kubewright.lifecycle import kept_patches
from kubewright.lifecycle.steps import static_pods
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.lifecycle.upgrade import control_plane

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

TOPIC: Final = "upgrade/manifests"


def show(ctx: UpgradeContext) -> None:
    """Say which changes are lost, as differences, with secrets masked."""
    for path, diff in _found(ctx):
        text = f'The changes that were made to "{path}" by hand are not kept, except in a copy of the file; patches (--patches) would be:'
        ctx.say(TOPIC, f"{text}\n{diff.rstrip()}")


def _found(ctx: UpgradeContext) -> Iterator[tuple[str, str]]:
    version = control_plane.version_of(ctx.host.read(ctx.host.layout.manifest(API_SERVER)) or b"")
    if not version:
        return
    before = _at(ctx, f"v{version}")
    for name, old in control_plane.present(before):
        rendered = _returned(control_plane.rendered(before, name))
        if not static_pods.same_pod(old, rendered):
            path, plain = str(ctx.host.layout.manifest(name)), yaml.dump(yaml.load(old, source=name))
            yield path, masked_diff(rendered.decode(), plain, name=path)


def _at(ctx: UpgradeContext, version: str) -> UpgradeContext:
    """Return this run as if it brought another version with the patches of the last run, where nothing is written or said."""
    init = replace(ctx.task.init, patches_directory=kept_patches.chosen(ctx.host, ""))
    bound = replace(ctx.bound, host=OverlayHost(ctx.host), reporter=SilentReporter())
    return replace(ctx, bound=bound, task=replace(ctx.task, version=version, init=init))


def _returned(steps: Generator[object, None, bytes]) -> bytes:
    """Go through steps and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)
