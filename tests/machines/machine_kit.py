"""What the tests of this tier share: configurations, kubewright and kubectl in a machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from testbed.configuration import KUBEADM as INIT
from testbed.machine import Ended, Machine
from testbed.sharing import ENVIRONMENT, PYTHON, SHARED

__all__ = ["CONFIG", "ENVIRONMENT", "INIT", "SHARED", "argv", "eventually", "kubectl", "kubewright", "ready", "write"]

CONFIG = "/root/kubeadm.yaml"


def write(machine: Machine, path: str, text: str) -> None:
    machine.run("sh", "-c", f"cat > {path}", data=text)


def argv(*arguments: str) -> list[str]:
    return [PYTHON, "-m", "kubewright", *arguments]


def kubewright(machine: Machine, *arguments: str, check: bool = True) -> Ended:
    return machine.run(*argv(*arguments), env=ENVIRONMENT, check=check)


def kubectl(machine: Machine, *arguments: str) -> dict[str, Any]:
    """Ask with the administrator's kubeconfig; an answer that is no JSON yet is an empty one."""
    ended = machine.run("kubectl", *arguments, "-o", "json", env={"KUBECONFIG": "/etc/kubernetes/admin.conf"}, check=False)
    return dict(json.loads(ended.out)) if ended.code == 0 else {}


def eventually(condition: Callable[[], bool], what: str, *, within: float = 600) -> None:
    """Wait; the time is a guard against hangs and no measurement."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.5)


def ready(machine: Machine, kind: str, name: str) -> bool:
    """Tell whether all pods of a workload are ready."""
    status = kubectl(machine, "-n", "kube-system", "get", kind, name).get("status", {})
    wanted = status.get("desiredNumberScheduled") or status.get("replicas") or 0
    return wanted > 0 and wanted == (status.get("numberReady") or status.get("readyReplicas"))
