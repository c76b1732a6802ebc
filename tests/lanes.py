"""Which tests run beside which, where a run has several processes (pytest-xdist, `make test`).

A file stays in one process, for its fixtures, and so do the files that share the cluster of our own plugin. What starts clusters or boots machines
has a weight; the weights of what runs at the same time do not exceed a limit, so that the tests do not overload the machine. What has none
fills the other processes. Tests that take long begin first, so that nothing long is left at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


class Cost(NamedTuple):
    """What running a file costs: `weight` is about how many processes it keeps busy beside its own, `seconds` how long it takes alone."""

    weight: int
    seconds: int


LIMIT: Final = 3 * max(2, os.cpu_count() or 2)
"""What the weights of files that run at the same time may add up to: about the load average that they make."""
NOTHING: Final = Cost(0, 5)
PLUGIN_CLUSTER: Final = "tests/controlplane/: cluster of the plugin"
TOGETHER: Final = (
    "config_diff",
    "controllers_real",
    "component_flagz",
    "kube_client",
    "local_secure",
    "node_request_states",
    "plugin_clients",
)
"""Files of tests/controlplane that share the cluster of our own plugin: there is one for a run, in the network of the process that made it."""
FOLDERS: Final[Mapping[str, Cost]] = {
    "tests/unit/": NOTHING,
    "tests/compat/": NOTHING,
    "tests/controlplane/": Cost(2, 15),
    "tests/machines/": Cost(3, 45),
}
"""What a file costs that has no row of its own."""
COSTS: Final[Mapping[str, Cost]] = {
    PLUGIN_CLUSTER: Cost(2, 80),
    "tests/machines/test_agent_machines.py": Cost(4, 180),
    "tests/machines/test_canaries_machines.py": Cost(4, 40),
    "tests/machines/test_controllers_machines.py": Cost(4, 60),
    "tests/machines/test_faults_checks.py": Cost(3, 55),
    "tests/machines/test_faults_joining.py": Cost(4, 90),
    "tests/machines/test_faults_quorum.py": Cost(4, 150),
    "tests/machines/test_faults_starting.py": Cost(3, 85),
    "tests/machines/test_hub_machines.py": Cost(4, 130),
    "tests/machines/test_interop_machines.py": Cost(4, 195),
    "tests/machines/test_join_control_plane.py": Cost(4, 120),
    "tests/machines/test_join_worker.py": Cost(4, 120),
    "tests/machines/test_kill_control_plane.py": Cost(3, 140),
    "tests/machines/test_kill_init.py": Cost(3, 120),
    "tests/machines/test_kill_worker.py": Cost(3, 100),
    "tests/machines/test_reset_machines.py": Cost(4, 110),
    "tests/machines/test_typed_machines.py": Cost(4, 100),
    "tests/machines/test_upgrade_cluster.py": Cost(4, 290),
    "tests/machines/test_upgrade_machines.py": Cost(4, 290),
    "tests/controlplane/test_agent_disturbed.py": Cost(2, 75),
    "tests/controlplane/test_agent_run.py": Cost(2, 60),
    "tests/controlplane/test_controllers_replicas_real.py": Cost(3, 45),
    "tests/controlplane/test_etcd_membership.py": Cost(2, 30),
    "tests/controlplane/test_hub_real.py": Cost(2, 40),
    "tests/controlplane/test_hub_secrets_real.py": Cost(3, 40),
    "tests/controlplane/test_local_beside.py": Cost(3, 100),
    "tests/controlplane/test_local_control_planes.py": Cost(4, 80),
    "tests/controlplane/test_local_down.py": Cost(2, 90),
    "tests/controlplane/test_local_faults.py": Cost(2, 90),
    "tests/controlplane/test_local_killed.py": Cost(2, 120),
    "tests/controlplane/test_local_ordinary_user.py": Cost(2, 40),
    "tests/controlplane/test_local_repeated.py": Cost(2, 40),
    "tests/controlplane/test_plugin_guide.py": Cost(2, 40),
    "tests/controlplane/test_plugin_runs.py": Cost(2, 120),
    "tests/controlplane/test_plugin_workers.py": Cost(2, 50),
    "tests/controlplane/test_upgrade_plan.py": Cost(2, 40),
    "tests/compat/test_certs_beside_kubeadm.py": Cost(0, 50),
    "tests/compat/test_config_differential.py": Cost(0, 150),
    "tests/compat/test_init_differential.py": Cost(0, 60),
    "tests/compat/test_malformed_input.py": Cost(0, 180),
}
"""Files that cost something else: several control planes or more than two machines at a time, or more than a minute."""


def scope(nodeid: str) -> str:
    """Return what a test stays together with."""
    path = nodeid.partition("::")[0]
    return PLUGIN_CLUSTER if path in {f"tests/controlplane/test_{name}.py" for name in TOGETHER} else path


def cost(scope: str) -> Cost:
    """Return what a file costs."""
    return COSTS.get(scope) or next((found for folder, found in FOLDERS.items() if scope.startswith(folder)), NOTHING)


def choose(waiting: Sequence[str], others: Iterable[str]) -> str | None:
    """Return what a process runs next, None if what is left must wait. `others` is what the other processes have to do."""
    room = LIMIT - sum(cost(one).weight for one in others)
    allowed = [one for one in waiting if cost(one).weight <= room or not cost(one).weight]
    return max(allowed, key=lambda one: (cost(one).weight > 0, cost(one).seconds), default=None)


class Lanes(LoadScopeScheduling):
    """Gives each process the next file that may run beside what the others have."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        chosen = choose(list(self.workqueue), self._of_others(node))
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        # a process to which nothing may be given ends when it has done what it has: nobody would wake it later
        if self.workqueue and choose(list(self.workqueue), self._of_others(node)) is None and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _of_others(self, node: WorkerController) -> list[str]:
        """Return what the other processes have not done yet: one is at work at one thing, and may have the next already."""
        units = [self.assigned_work[other] for other in self.nodes if other is not node]
        return [one for unit in units if (one := _heaviest(unit)) is not None]


def _heaviest(unit: Mapping[str, Mapping[str, bool]]) -> str | None:
    """Return the heaviest thing of a process that is not done: it is at it or will be."""
    left = [one for one, tests in unit.items() if not all(tests.values())]
    return max(left, key=lambda one: cost(one).weight, default=None)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """Take the place of plain load balancing; what somebody names on the command line stays."""
    return Lanes(config, log) if config.getvalue("dist") == "load" else None
