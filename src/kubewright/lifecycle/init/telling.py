"""Seams that do nothing and say what would be done, in kubeadm's form for a dry run (spec/kubeadm.md 2.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubewright.base.change import Action as ChangeAction
from kubewright.base.change import Change
from kubewright.base.events import Line, Reporter, Waited
from kubewright.base.masking import mask
from kubewright.base.waiting import Condition
from kubewright.host.desired import Accounts, Desired, Directory, File, Ownership, Service, Show
from kubewright.host.facts import Facts
from kubewright.host.overlay import OverlayHost
from kubewright.host.seam import Host
from kubewright.kube import comparing
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object, PatchType, Propagation
from kubewright.kube.recording import Action, RecordingKube
from kubewright.kube.resources import Resource

TOPIC: Final = "dryrun"
_WITH_OBJECT: Final = frozenset({"create", "update", "patch"})


def announce(reporter: Reporter, text: str) -> None:
    """Say one thing that would be done."""
    reporter.emit(Line(topic=TOPIC, text=text))


class TellingHost(OverlayHost):
    """An overlay that tells each file with its real path and content; certificates and kubeconfigs are not told."""

    def __init__(self, base: Host, *, reporter: Reporter, facts: Facts | None = None) -> None:
        super().__init__(base, facts=facts)
        self._reporter = reporter

    def ensure(self, desired: Desired, /) -> Change:
        if isinstance(desired, Accounts):  # told and not added, as with kubeadm: their numbers are only known when they are
            announce(self._reporter, f"Would create the users and groups [{' '.join(desired.groups)}] unless they are there")
            return Change(target=desired.target, action=ChangeAction.NONE)
        change = super().ensure(desired)
        if change:
            self._tell(desired, change)
        return change

    def _tell(self, desired: Desired, change: Change) -> None:
        match desired:
            case File(show=Show.DIFF):
                text = mask(desired.content.decode(errors="replace").rstrip("\n"))
                announce(self._reporter, f'Would write file "{desired.path}" with content:\n{text}')
            case Directory():
                announce(self._reporter, f'Would make sure that the directory "{desired.path}" is there')
            case Ownership():
                announce(self._reporter, f'Would give "{desired.path}" to user {desired.owner} and group {desired.group}')
            case Service():
                announce(self._reporter, f"Would {change.reason.replace(', ', ' and ')} the service {desired.name}")


class TellingKube(RecordingKube):
    """A recording cluster that tells each request which would change something; reads are really made, or answered from memory."""

    def __init__(self, base: KubeAPI | None = None, *, reporter: Reporter, stand_ins: Iterable[Mapping[str, Any]] = ()) -> None:
        super().__init__(base, stand_ins=stand_ins)
        self._reporter = reporter

    def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        return self._told(lambda: super(TellingKube, self).create(obj, resource=resource, subresource=subresource))

    def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        return self._told(lambda: super(TellingKube, self).update(obj, resource=resource, subresource=subresource))

    def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        type: PatchType = "strategic",
        subresource: str = "",
        force: bool = False,
    ) -> Object:
        return self._told(
            lambda: super(TellingKube, self).patch(resource, name, body, namespace, type=type, subresource=subresource, force=force)
        )

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "",
        grace_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> Object:
        return self._told(
            lambda: super(TellingKube, self).delete(
                resource,
                name,
                namespace,
                propagation=propagation,
                grace_seconds=grace_seconds,
                uid=uid,
                resource_version=resource_version,
            )
        )

    def _told(self, call: Callable[[], Object]) -> Object:
        with self._lock:  # the last request is then the one of this call
            answer = call()
            for text in lines(self.actions[-1]):
                announce(self._reporter, text)
        return answer


def lines(action: Action) -> list[str]:
    """Say one request in kubeadm's words. The name is told where it is not in the object; values of Secrets are masked, unlike there."""
    row = action.resource
    group = f"{row.group or 'core'}/{row.version}"
    said = [f'Would perform action {action.verb.upper()} on resource "{row.plural}" in API group "{group}"']
    if action.name and action.verb != "create":
        said.append(f'Resource name "{action.name}", namespace "{action.namespace or ""}"')
    if action.verb in _WITH_OBJECT and action.result is not None:
        said.append(f"Attached object:\n{comparing.masked_yaml(action.result)}")
    return said


class TellingWaiter:
    """Waits for nothing, and says what would be waited for."""

    def __init__(self, *, reporter: Reporter) -> None:
        self._reporter = reporter

    def until(
        self,
        condition: Condition,
        /,
        *,
        within: float,
        saying: str,
        every: float = 0.05,
        at_most: float = 0.5,
        diagnose: Callable[[], str] | None = None,
        remedy: str = "",
    ) -> Waited:
        announce(self._reporter, f"Would wait for {saying}")
        return Waited(what=saying, seconds=0.0)
