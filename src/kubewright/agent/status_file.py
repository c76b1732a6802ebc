"""The state of an agent in a file, which is replaced as a whole, and can be read even if the agent is dead.

    {"apiVersion": "agent.kubewright.dev/v1alpha1", "kind": "AgentStatus", "node": "node-1", "phase": "Ready", …}

Times are RFC 3339; null for events that have not happened.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.agent.certificates.manager import CertificateView, WaitingRequest
from kubewright.agent.view import NodePhase, NodeView
from kubewright.base.clock import rfc3339
from kubewright.base.errors import DocumentError, HostError
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.host.readers import FileReader
from kubewright.host.seam import Processes

API_VERSION: Final = "agent.kubewright.dev/v1alpha1"
KIND: Final = "AgentStatus"
NAME: Final = "kubewright-agent.json"
_FIELDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("node", "started", "kubeconfig", "pki", "phase", "trouble"), str),
    **dict.fromkeys(("certificate", "failedSetters"), dict),
    **dict.fromkeys(("statusReported", "leaseRenewed", "waiting"), (str, dict, type(None))),
    "pid": int,
    "ready": bool,
    "missingTaints": list,
}
"""The fields that are read from a status file, and their types."""
_LOOK: Final = 1.0
"""Seconds between two checks for changes."""


def path_of(root: PurePosixPath) -> PurePosixPath:
    """Return where the agent of a root directory writes its status."""
    return root / NAME


def record(
    view: NodeView,
    *,
    pid: int,
    started: datetime,
    kubeconfig: PurePosixPath,
    pki: PurePosixPath,
    taints: Sequence[str] = (),
    kubelet_api: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of the file. `taints` are configured taints that an existing Node lacks, because a node may not add them.

    `kubelet_api` says where the API listens, or why it does not.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "node": view.name,
        "pid": pid,
        "started": rfc3339(started),
        "kubeconfig": str(kubeconfig),
        "pki": str(pki),
        "phase": view.phase.value,
        "ready": view.ready,
        "notReady": view.not_ready,
        "trouble": view.trouble,
        "certificate": {key: value for key, value in _certificate(view.certificate).items() if key != "waiting"},
        "waiting": _waiting(view.certificate.waiting),
        "servingCertificate": None if view.serving is None else _certificate(view.serving),
        "kubeletAPI": kubelet_api,
        "statusReported": _moment(view.reported_at),
        "leaseRenewed": _moment(view.renewed_at),
        "failedSetters": dict(view.failures),
        "clock": view.clock,
        "missingTaints": list(taints),
        "pods": view.pods,
    }


def _certificate(view: CertificateView) -> dict[str, Any]:
    return {
        "expires": _moment(view.expires),
        "rotates": _moment(view.rotates_at),
        "reason": view.reason,
        "trouble": view.trouble,
        "waiting": _waiting(view.waiting),
    }


def _waiting(request: WaitingRequest | None) -> dict[str, Any] | None:
    if request is None:
        return None
    return {
        "request": request.name,
        "since": rfc3339(request.since),
        "approved": request.approved,
        "explanation": request.explanation,
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)


def read(files: FileReader, root: PurePosixPath) -> Mapping[str, Any]:
    """Return the last status of the agent of a root directory. Raises HostError if there is none, DocumentError for any other content."""
    path = path_of(root)
    content = files.read(path)
    if content is None:
        raise HostError(
            f"no agent has run here: {path} does not exist", remedy="start one with `kubewright agent run`, or pass its --root-dir"
        )
    try:
        found = json.loads(content)
    except ValueError as error:
        raise DocumentError(f"{path} is not JSON", detail=str(error), remedy="a running agent rewrites it within seconds") from error
    if not isinstance(found, dict) or (found.get("apiVersion"), found.get("kind")) != (API_VERSION, KIND) or not _is_complete(found):
        raise DocumentError(f"{path} is not an {KIND} of this version", remedy="a running agent rewrites it within seconds")
    return found


def _is_complete(found: Mapping[str, Any]) -> bool:
    return all(isinstance(found.get(name), kind) for name, kind in _FIELDS.items()) and found["certificate"].keys() >= {
        "expires",
        "rotates",
    }


def runs(status: Mapping[str, Any], processes: Processes) -> bool:
    """Whether the agent that wrote a status is still running."""
    return status["phase"] != NodePhase.STOPPED.value and processes.of(int(status["pid"])) is not None


class StatusFile:
    """Keeps the file up to date during `run`, and records at the end that the agent has stopped."""

    def __init__(self, files: Files, root: PurePosixPath, current: Callable[[], dict[str, Any]]) -> None:
        self._files = files
        self._path = path_of(root)
        self._current = current
        self._written: dict[str, Any] = {}

    async def run(self) -> None:
        """Check every second, and write changes. A full disk must not end the agent; handling that is up to the caller."""
        while True:
            self.write()
            await asyncio.sleep(_LOOK)

    def write(self) -> None:
        """Write the current state if it differs from what was written last. Raises HostError."""
        found = self._current()
        if found and found != self._written:
            content = json.dumps(found, indent=2).encode() + b"\n"
            self._files.write(File(path=self._path, content=content, mode=0o644, durable=False))
            self._written = found
