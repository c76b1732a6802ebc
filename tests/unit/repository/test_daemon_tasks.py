"""No task of a daemon ends silently: each is restarted after an unexpected error, or its result is awaited."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src/kubewright"

AWAITED = {
    ("agent/certificates/bootstrap.py", "self._watch"): "its watch and each of its events are attempts",
    ("agent/daemon.py", "self.agent.run"): "the daemon waits for it, and `keep_running` calls the daemon's run",
    ("agent/daemon.py", "self._reload.wait"): "the same",
    ("agent/daemon.py", "self.agent.require_certificate"): "the same",
    ("agent/observation/observer.py", "self._for_runtime.make"): "its result is taken",
    ("agent/periodic.py", "self._round"): "it catches everything",
    ("cli/handlers/controllers/run.py", "identities.keep_kubeconfig"): "in a group, which `keep_running` runs",
    ("cli/handlers/controllers/run.py", "in_cluster.keep_token"): "the same",
    ("cli/handlers/controllers/run.py", "report_status"): "the same",
    ("cli/handlers/daemons/running.py", "work"): "its result is taken",
    ("cli/handlers/hub/run.py", "running.report_status"): "in a group, which `keep_running` runs",
    ("cli/handlers/hub/run.py", "leading.maintain"): "the same",
    ("controllers/certificates.py", "self._ask"): "whoever asks waits for the answer",
    ("enrollment/hub/hub.py", "self._keep_serving"): "it catches everything",
    ("enrollment/hub/tenants.py", "Workers(…).run"): "in a group, which `_keep_serving` runs",
    ("enrollment/hub/tenants.py", "informer.run"): "the same",
    ("http/accepting.py", "self._set_up"): "it catches everything",
    ("kube/daemons/controller.py", "self._work"): "`_once` catches everything, and the results are taken",
    ("kube/daemons/electing.py", "lead"): "its result is taken",
    ("kube/daemons/electing.py", "self._renew"): "the same; an attempt catches everything",
    ("local/daemon/control_server.py", "in_turn"): "the caller waits for it, or has gone",
    ("local/daemon/daemon.py", "event.wait"): "it cannot fail",
    ("local/supervisor/container_worker.py", "watcher.watch"): "its result is taken",
    ("local/supervisor/probes.py", "self._stay_alive"): "its result is taken",
    ("local/supervisor/probes.py", "self._stay_ready"): "its result is taken",
    ("local/whole/services/forwarding.py", "_passed_on"): "in a group of one connection, which ends with it",
    ("local/whole/services/forwarding.py", "self._open"): "it catches what sockets raise; the client sends another packet",
    ("local/whole/services/program_server.py", "self._serve"): "it catches everything",
    ("local/whole/services/program_server.py", "readable"): "its result is taken",
}
KEPT = 12
"""Calls that pass `keep_running` to a task: fewer of them mean that this test no longer finds them."""


def begun(path: Path) -> list[str]:
    """Return the functions whose coroutines a file turns into tasks."""
    found = []
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in {"create_task", "ensure_future"}:
            work = call.args[0].body if isinstance(call.args[0], ast.IfExp) else call.args[0]
            if isinstance(work, ast.Call):
                name = ast.unparse(work.func)
                found.append(name if "(" not in name else f"{name.partition('(')[0]}(…).{name.rpartition('.')[2]}")
            else:
                found.append(f"variable {ast.unparse(work)}")
    return found


def test_each_task_is_restarted_or_awaited() -> None:
    rows = [(str(path.relative_to(SOURCES)), name) for path in sorted(SOURCES.rglob("*.py")) for name in begun(path)]
    kept = [row for row in rows if row[1].endswith("keep_running") or (row[0] == "agent/lasting_node.py" and row[1] == "variable run")]
    assert sorted(set(rows) - set(kept)) == sorted(AWAITED)
    assert len(kept) >= KEPT
