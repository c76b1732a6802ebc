"""Objects as desired state: look, decide, act, and report one Change. A second time nothing is written.

kubeadm creates, and on "already exists" replaces (kubeadm.md 7.0). Here what is there is read first, compared by meaning, and changed by
PUT of the raw map that was read, so a field that we do not know is never lost and a change in between is noticed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubewright.base.change import Action, Change, Lifetime
from kubewright.base.errors import AlreadyExists, Conflict, NotFound
from kubewright.base.records import dataclass, field
from kubewright.kube import comparing, core, resources
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import Resource

_ATTEMPTS: Final = 4
"""How often an object that changes under our hands is read again."""


class Write(enum.Enum):
    """What may be done to an object that is already there."""

    REPLACE = "replace"
    """Make what is desired so; keep what nobody asked for."""
    CREATE_ONLY = "create only"
    """Leave it as it is."""
    MUTATE_DATA_KEYS = "mutate data keys"
    """Set the named keys of `data`; everything else stays (kubeadm-config)."""


@dataclass(frozen=True)
class Object:
    """An API object that should be there. `keys` are the data keys of MUTATE_DATA_KEYS, by default all of the body's."""

    body: Mapping[str, Any]
    write: Write = field(default=Write.REPLACE, kw_only=True)
    lifetime: Lifetime = field(default=Lifetime.DURABLE, kw_only=True)
    keys: tuple[str, ...] = field(default=(), kw_only=True)
    resource: Resource | None = field(default=None, kw_only=True)
    """The row of a kind that the table does not know."""

    @property
    def target(self) -> str:
        """What messages call it: `configmap kube-system/kubeadm-config`."""
        return core.about_object(self.body)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What has to happen, and what to send."""

    change: Change
    body: core.Object


def decide(found: Mapping[str, Any] | None, desired: Object) -> Decision:
    """Compare what was found (None: nothing) with what is desired. Pure."""
    wanted = comparing.normal(desired.body)
    if found is None:
        return _decision(desired, Action.CREATE, wanted, diff=comparing.difference(None, wanted, name=desired.target))
    if desired.write is Write.CREATE_ONLY:
        return _decision(desired, Action.NONE, dict(found), reason="it is there and is left as it is")
    if desired.write is Write.MUTATE_DATA_KEYS:
        given = wanted.get("data") or {}
        part = {key: given[key] for key in desired.keys or tuple(given)}
        wanted = {**found, "data": {**(found.get("data") or {}), **part}, "metadata": {}}
    if comparing.contains(found, wanted):
        return _decision(desired, Action.NONE, dict(found))
    body = comparing.replaced(found, wanted)
    return _decision(desired, Action.UPDATE, body, diff=comparing.difference(found, body, name=desired.target))


def ensure_object(api: KubeAPI, desired: Object) -> Change:
    """Make an object be there as desired, and say what that took.

    Somebody who creates, changes or deletes it at the same moment is answered by looking again, a few times; then the error stands.
    """
    row = desired.resource or resources.of(desired.body)
    name, namespace = core.identity_of(desired.body)

    def look() -> core.Object | None:
        try:
            return api.get(row, name, namespace)
        except NotFound:
            return None

    return _settle(look, lambda found: decide(found, desired), lambda decision: _apply(api, decision, row))


def remove_object(api: KubeAPI, resource: Resource, name: str, namespace: str | None = None) -> Change:
    """Make an object be gone, and say what that took."""
    target = core.about(resource, name, namespace)
    try:
        found = api.get(resource, name, namespace)
        api.delete(resource, name, namespace, uid=str(core.metadata(found).get("uid") or ""))
    except NotFound:
        return Change(target=target, action=Action.NONE)
    return Change(target=target, action=Action.DELETE)


def _settle(
    look: Callable[[], core.Object | None],
    choose: Callable[[core.Object | None], Decision],
    act: Callable[[Decision], None],
) -> Change:
    for attempt in range(_ATTEMPTS):
        decision = choose(look())
        if not decision.change:
            break
        try:
            act(decision)
            break
        except (AlreadyExists, Conflict, NotFound):
            if attempt == _ATTEMPTS - 1:
                raise
    return decision.change


def _apply(api: KubeAPI, decision: Decision, row: Resource) -> None:
    if decision.change.action is Action.CREATE:
        api.create(decision.body, resource=row)
    else:
        api.update(decision.body, resource=row)


def _decision(desired: Object, action: Action, body: core.Object, *, diff: str = "", reason: str = "") -> Decision:
    change = Change(target=desired.target, action=action, diff=diff, reason=reason, lifetime=desired.lifetime)
    return Decision(change=change, body=body)
