"""A cluster that tells what would be asked of it, in the words of kubeadm's dry run (spec/kubeadm.md 2.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubewright.base.events import Line, Reporter
from kubewright.kube import comparing
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call, Object
from kubewright.kube.recording import READS, Action, RecordingKube

TOPIC: Final = "dryrun"
_WITH_OBJECT: Final = frozenset({"create", "update", "patch"})


class DryRunKube(RecordingKube):
    """A recording cluster that tells each call that would change something; reads are really made where there is a cluster, or answered from memory."""

    def __init__(self, base: KubeAPI | None = None, *, reporter: Reporter, stand_ins: Iterable[Mapping[str, Any]] = ()) -> None:
        super().__init__(base, stand_ins=stand_ins)
        self._reporter = reporter

    def send(self, call: Call, /) -> Object:
        with self._lock:  # the last action is then the one of this call
            answer = super().send(call)
            if call.verb not in READS:
                for text in lines(self.actions[-1]):
                    self._reporter.emit(Line(topic=TOPIC, text=text))
        return answer


def lines(action: Action) -> list[str]:
    """Say one call in kubeadm's words. The name is told where it is not in the object; values of Secrets are masked, unlike there."""
    call = action.call
    row = call.resource
    said = [f'Would perform action {call.verb.upper()} on resource "{row.plural}" in API group "{row.group or "core"}/{row.version}"']
    if call.name and call.verb != "create":
        said.append(f'Resource name "{call.name}", namespace "{call.namespace or ""}"')
    if call.verb in _WITH_OBJECT and action.result is not None:
        said.append(f"Attached object:\n{comparing.masked_yaml(action.result)}")
    return said
