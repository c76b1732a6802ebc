"""Manual changes of static pods: they are shown before the confirmation, and kept with `--keep-changes`.

Each manifest is compared with the one rendered from the configuration, the present version and the patches of the last
run. kubeadm replaces changed manifests without a message. `--keep-changes` turns the differences into patches, which
this upgrade and later ones apply.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kubewright.base import yaml
from kubewright.base.errors import HostError
from kubewright.base.masking import mask
from kubewright.base.records import dataclass, replace
from kubewright.host.desired import Directory, File, Show
from kubewright.kube import patches
from kubewright.lifecycle import kept_patches
from kubewright.lifecycle.steps import static_pods
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.lifecycle.upgrade.control_plane import phase
from kubewright.manifests.patches import Patch, Patches
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

TOPIC: Final = "upgrade/manifests"
_FIRST_START: Final = "--initial-cluster"
_PRIVATE: Final = 0o700
_LOST: Final = 'Manual changes of "{}" are not kept, except in a copy of the file. Use --keep-changes or patches (--patches) to keep them:'
_KEPT: Final = 'Manual changes of "{}" are kept as patches:'


@dataclass(frozen=True, kw_only=True)
class HandEdit:
    """A static pod that somebody has changed: what an upgrade to the present version would write, and what is there."""

    component: str
    path: str
    rendered: dict[str, Any]
    found: dict[str, Any]

    def diff(self) -> str:
        """Return the difference, with secrets masked."""
        given, there = (mask(yaml.dump(pod)).splitlines(keepends=True) for pod in (self.rendered, self.found))
        return "".join(difflib.unified_diff(given, there, "what the configuration and the patches give", self.path))

    def patch(self) -> list[dict[str, Any]]:
        """Return the JSON patch that makes this change. Raises HostError if no patch of a static pod can make it."""
        operations = patches.json_diff(self.rendered, self.found)
        made = Patch(target=self.component, type="json", body=operations, where=self.path)
        if not static_pods.same_pod(
            *(yaml.dump(pod).encode() for pod in (Patches((made,)).apply(self.component, self.rendered), self.found))
        ):
            raise HostError(
                f"the manual changes of {self.path} cannot be kept as patches: it has fields that no Pod has",
                detail=self.diff(),
                remedy="correct the manifest, or upgrade without --keep-changes",
            )
        return operations


def found(ctx: UpgradeContext) -> list[HandEdit]:
    """Return the static pods that were changed by hand, and report the changes."""
    edits = list(_edits(ctx))
    text = _KEPT if ctx.request.keep_changes else _LOST
    for edit in edits:
        ctx.say(TOPIC, f"{text.format(edit.path)}\n{edit.diff().rstrip()}")
    return edits


def keep(ctx: UpgradeContext, edits: Sequence[HandEdit]) -> Iterator[Step]:
    """If requested, add the changes to the patches of the last run, which this run applies.

    Nothing is written unless all changes can be kept. Raises HostError, naming the one that cannot.
    """
    if not ctx.request.keep_changes:
        return
    made = {edit.component: yaml.dump(edit.patch()) for edit in edits}
    directory = ctx.host.layout.patches
    yield ctx.host.ensure(Directory(path=directory, mode=_PRIVATE, enforce=True))
    for component, patch in made.items():
        path = directory / f"{component}~kept+json.yaml"  # the last of this component: patches are applied in the order of their names
        earlier = (ctx.host.read(path) or b"").decode()
        content = f"{earlier}---\n{patch}" if earlier else patch
        yield ctx.host.ensure(File(path=path, content=content.encode(), show=Show.SIZE, directory_mode=_PRIVATE))
    yield kept_patches.list_files(ctx.host, source="--keep-changes")


def _edits(ctx: UpgradeContext) -> Iterator[HandEdit]:
    version = phase.version_of(ctx.host.read(ctx.host.layout.manifest(API_SERVER)) or b"")
    if not version:
        return
    before = _at(ctx, f"v{version}")
    for name, old in phase.present(before):
        if not old:
            continue
        path = str(ctx.host.layout.manifest(name))
        rendered, there = (yaml.load(one, source=path) for one in (phase.returned(phase.rendered(before, name)), old))
        if not isinstance(rendered, dict) or not isinstance(there, dict):
            continue
        there = _aligned(there, rendered)
        if not static_pods.same_pod(yaml.dump(rendered).encode(), yaml.dump(there).encode()):
            yield HandEdit(component=name, path=path, rendered=rendered, found=there)


def _aligned(pod: dict[str, Any], rendered: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with the values of another one that depend on the run that wrote it.

    These are the arguments for the first start of etcd, and the failure threshold of startup probes, which follows a
    timeout of `init`.
    """
    spec = pod.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(containers, list):
        return pod
    return {**pod, "spec": {**spec, "containers": [_container(one, rendered["spec"]["containers"][0]) for one in containers]}}


def _container(container: Any, rendered: dict[str, Any]) -> Any:
    if not isinstance(container, dict) or container.get("name") != rendered.get("name"):
        return container
    made = dict(container)
    probe, other = container.get("startupProbe"), rendered.get("startupProbe")
    if isinstance(probe, dict) and isinstance(other, dict):
        made["startupProbe"] = {**probe, "failureThreshold": other.get("failureThreshold")}
    if isinstance(container.get("command"), list):
        command = [one for one in container["command"] if not _starts_first(one)]
        for index, argument in enumerate(rendered["command"]):
            if _starts_first(argument):
                command.insert(index, argument)
        made["command"] = command
    return made


def _starts_first(argument: object) -> bool:
    return str(argument).startswith(_FIRST_START)


def _at(ctx: UpgradeContext, version: str) -> UpgradeContext:
    """Return the context of a run that writes and reports nothing, with another version and the patches of the last run."""
    init = replace(ctx.task.init, patches_directory=kept_patches.chosen(ctx.host, ""))
    return phase.draft(ctx, replace(ctx.task, version=version, init=init))
