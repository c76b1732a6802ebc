"""What of a log is worth telling. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from kubewright.base.patterns import Pattern

LONGEST: Final = 240
"""Characters of a line that is told as a reason."""
_HEAD: Final = 90
"""Of these, those of its beginning: what was done is told there, and why it failed at the end."""

_CAUSES: Final = Pattern(
    r'"Failed to pull image"|is not present with pull policy|MountVolume\.SetUp failed'
    r'|"(RunPodSandbox|StartContainer|CreateContainer in sandbox) from runtime service failed"'
)
"""How a kubelet says why a container is not there (k8s.io/cri-client, pkg/kubelet/kuberuntime)."""
_HEADER: Final = Pattern(r"^(?P<level>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+:\d+\] ")
"""What Kubernetes' components put in front of a line: level, date, time, thread, file and line (k8s.io/klog)."""
_SYSTEMD: Final = Pattern(r"^(\S+\.service: |(Started|Starting|Stopped|Stopping) )")
_FAILED: Final = Pattern(r"^\S+\.service: (Failed (?!with result)|Unable )")
"""What systemd says of a service that it could not even start."""
_COMPLAINT: Final = Pattern(r'^(error|panic|fatal|invalid|flag provided|unknown)\b|"level":"(error|d?panic|fatal)"', re.IGNORECASE)
"""How a component's last words begin that does not use klog: a bad flag, which all of its usage follows, or etcd's own log."""
_MEMBERS: Final = ("msg", "error")
"""Of a line of etcd's log, which is JSON."""
_CONSEQUENCES: Final = Pattern(
    r"connection refused|cni plugin not initialized|network not ready|node \S+ not found|Error getting (the current )?node"
    r"|Missing actuated pod level|Failed to ensure lease|Unable to register node|CrashLoopBackOff|Failed to watch|ImagePullBackOff|UnmountVolume|orphaned pod"
    r"|checkpoint is not found|Unable to write event|set owner ref to the node lease|no imagefs label|oom.score|PLEG is not healthy"
)
"""What a kubelet complains about while there is no API server: that is what is waited for, and no reason."""


def essential(lines: Sequence[str]) -> list[str]:
    """Return the lines that tell a reason: why there is no container, else errors, else what the program wrote outside of its log, else why systemd could not start it."""
    if causes := [line for line in lines if _CAUSES.search(line)]:
        return causes
    found = [line for line in lines if line.strip() and not _CONSEQUENCES.search(line)]
    for wanted in (is_error, _is_own, _FAILED.search):
        if chosen := [line for line in found if wanted(line)]:
            return chosen
    return []


def complaints(lines: Sequence[str]) -> list[str]:
    """Return what a component complained about; all of the lines where that cannot be told."""
    return [line for line in lines if is_error(line) or _COMPLAINT.search(line)] or list(lines)


def telling(lines: Sequence[str]) -> str:
    """Return the last line that tells a reason, without what stands in front of it; '' of none."""
    chosen = essential(lines)
    return short(chosen[-1]) if chosen else ""


def short(line: str) -> str:
    """Return a line of a log as part of a sentence."""
    matched = _HEADER.match(line)
    text = " ".join((line[matched.end() :] if matched else _of_json(line)).split())
    return text if len(text) <= LONGEST else f"{text[:_HEAD]} … {text[_HEAD + 3 - LONGEST :]}"


def _of_json(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        found = json.loads(line)
    except ValueError:
        return line
    return ": ".join(str(found[name]) for name in _MEMBERS if found.get(name)) or line


def is_error(line: str) -> bool:
    """Whether a component of Kubernetes calls a line of its log an error."""
    matched = _HEADER.match(line)
    return matched is not None and matched["level"] in "EF"


def _is_own(line: str) -> bool:
    return _HEADER.match(line) is None and not _SYSTEMD.match(line)
