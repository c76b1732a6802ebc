"""Which test files run at the same time when a run has several processes (pytest-xdist, `make test`).

All tests of a file run in one process, because they share fixtures; the files that use the cluster of our pytest plugin count as one file. Files
that start clusters or boot machines have a weight. The weights of the files that are running never add up to more than a limit, so that the
tests do not overload the machine. The longest files start first, so that no long file is left for the end. In `make test`, files without a
weight fill the processes for which no other file fits; the rest has few of them, and some of those are long.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


class Cost(NamedTuple):
    """What it costs to run a file: `weight` is about how many processes it keeps busy besides pytest, `seconds` how long it takes beside others.

    If a file has tests in several parts of the suite, its seconds are those of the longer one of `make test` and the rest.
    """

    weight: int
    seconds: int


CORES: Final = max(2, os.cpu_count() or 2)
LIMIT: Final = 3 * CORES
"""The largest sum of weights of files that run at the same time. It is about the load average that they cause."""
REST: Final = 5 * CORES
"""The same for the rest of the suite: two files that boot machines always fit, and a third file that starts a control plane. The rest has few files
without a weight, and a process ends if nothing that is waiting fits. With 4 for each core, that happened in the first third of the run."""
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
"""Files of tests/controlplane that share the cluster of our plugin. A run has one, in the network namespace of the process that created it."""
FOLDERS: Final[Mapping[str, Cost]] = {
    "tests/unit/": NOTHING,
    "tests/compat/": NOTHING,
    "tests/controlplane/": Cost(2, 15),
    "tests/machines/": Cost(3, 45),
}
"""The cost of files without a row of their own."""
COSTS: Final[Mapping[str, Cost]] = {
    PLUGIN_CLUSTER: Cost(2, 80),
    "tests/machines/test_adopt_machines.py": Cost(3, 65),
    "tests/machines/test_agent_machines.py": Cost(4, 215),
    "tests/machines/test_archive_machines.py": Cost(3, 85),
    "tests/machines/test_canaries_machines.py": Cost(4, 100),
    "tests/machines/test_ci_machines.py": Cost(3, 25),
    "tests/machines/test_controllers_image.py": Cost(4, 70),
    "tests/machines/test_controllers_machines.py": Cost(4, 130),
    "tests/machines/test_etcd_machines.py": Cost(3, 120),
    "tests/machines/test_faults_checks.py": Cost(3, 40),
    "tests/machines/test_faults_joining.py": Cost(4, 90),
    "tests/machines/test_faults_quorum.py": Cost(4, 150),
    "tests/machines/test_faults_starting.py": Cost(3, 195),
    "tests/machines/test_hub_machines.py": Cost(4, 240),
    "tests/machines/test_init_machines.py": Cost(3, 120),
    "tests/machines/test_interop_machines.py": Cost(4, 145),
    "tests/machines/test_join_control_plane.py": Cost(4, 160),
    "tests/machines/test_join_worker.py": Cost(4, 140),
    "tests/machines/test_kill_control_plane.py": Cost(3, 95),
    "tests/machines/test_kill_init.py": Cost(3, 185),
    "tests/machines/test_kill_upgrade.py": Cost(2, 220),
    "tests/machines/test_kill_worker.py": Cost(3, 55),
    "tests/machines/test_rights_machines.py": Cost(3, 80),
    "tests/machines/test_reset_machines.py": Cost(4, 130),
    "tests/machines/test_serving_machines.py": Cost(4, 90),
    "tests/machines/test_strict_machines.py": Cost(4, 30),
    "tests/machines/test_testbed.py": Cost(3, 20),
    "tests/machines/test_typed_machines.py": Cost(4, 275),
    "tests/machines/test_whole_clusters.py": Cost(4, 130),
    "tests/machines/test_whole_example.py": Cost(3, 55),
    "tests/machines/test_whole_families.py": Cost(4, 110),
    "tests/machines/test_whole_hosts.py": Cost(4, 120),
    "tests/machines/test_whole_kills.py": Cost(4, 110),
    "tests/machines/test_whole_lifecycle.py": Cost(4, 130),
    "tests/machines/test_whole_outages.py": Cost(4, 120),
    "tests/machines/test_whole_planes.py": Cost(4, 130),
    "tests/machines/test_whole_plugin.py": Cost(3, 25),
    "tests/machines/test_whole_tree.py": Cost(4, 130),
    "tests/machines/test_whole_versions.py": Cost(4, 80),
    "tests/machines/test_upgrade_cluster.py": Cost(4, 490),
    "tests/machines/test_upgrade_machines.py": Cost(3, 420),
    "tests/machines/test_upgrade_kubelets.py": Cost(4, 300),
    "tests/machines/test_upgrade_matrix.py": Cost(4, 2400),
    "tests/machines/test_upgrade_minor.py": Cost(4, 420),
    "tests/controlplane/test_agent_disturbed.py": Cost(2, 110),
    "tests/controlplane/test_agent_lifecycle.py": Cost(2, 40),
    "tests/controlplane/test_agent_nodes.py": Cost(2, 35),
    "tests/controlplane/test_agent_run.py": Cost(2, 60),
    "tests/controlplane/test_ci_templates.py": Cost(2, 140),
    "tests/controlplane/test_controllers_replicas_real.py": Cost(3, 140),
    "tests/controlplane/test_etcd_membership.py": Cost(2, 55),
    "tests/controlplane/test_etcd_restore.py": Cost(4, 290),
    "tests/controlplane/test_hub_real.py": Cost(2, 55),
    "tests/controlplane/test_hub_secrets_real.py": Cost(3, 60),
    "tests/controlplane/test_local_concurrency.py": Cost(3, 190),
    "tests/controlplane/test_local_control_planes.py": Cost(4, 240),
    "tests/controlplane/test_local_down.py": Cost(2, 130),
    "tests/controlplane/test_local_faults.py": Cost(2, 170),
    "tests/controlplane/test_local_killed.py": Cost(2, 210),
    "tests/controlplane/test_local_namespaces.py": Cost(2, 70),
    "tests/controlplane/test_local_ordinary_user.py": Cost(2, 65),
    "tests/controlplane/test_local_repeated.py": Cost(2, 65),
    "tests/controlplane/test_plugin_guide.py": Cost(2, 80),
    "tests/controlplane/test_plugin_runs.py": Cost(2, 120),
    "tests/controlplane/test_plugin_workers.py": Cost(2, 70),
    "tests/controlplane/test_readme_typed.py": Cost(2, 100),
    "tests/controlplane/test_serving_sources_real.py": Cost(2, 55),
    "tests/controlplane/test_serving_storms_real.py": Cost(2, 35),
    "tests/controlplane/test_token_commands.py": Cost(2, 25),
    "tests/controlplane/test_upgrade_plan.py": Cost(2, 40),
    "tests/compat/test_certs_comparison.py": Cost(0, 30),
    "tests/compat/test_command_lines.py": Cost(0, 35),
    "tests/compat/test_config_differential.py": Cost(0, 65),
    "tests/compat/test_init_cases.py": Cost(0, 30),
    "tests/compat/test_init_differential.py": Cost(0, 40),
    "tests/compat/test_malformed_input.py": Cost(0, 80),
    "tests/unit/cli/test_rootfs.py": Cost(0, 60),
    "tests/unit/enrollment/test_node_leave.py": Cost(0, 15),
    "tests/unit/enrollment/test_vpn_node.py": Cost(0, 15),
    "tests/unit/http/test_accepting.py": Cost(0, 20),
    "tests/unit/lifecycle/test_attempts.py": Cost(0, 35),
    "tests/unit/lifecycle/test_upgrade_phases.py": Cost(0, 70),
}
"""Files with other costs: several control planes, more than two machines at a time, or unusually long tests."""


def scope(nodeid: str) -> str:
    """Return the file of a test, or the common name of the files that share a cluster."""
    path = nodeid.partition("::")[0]
    return PLUGIN_CLUSTER if path in {f"tests/controlplane/test_{name}.py" for name in TOGETHER} else path


def cost(scope: str) -> Cost:
    """Return what a file costs."""
    return COSTS.get(scope) or next((found for folder, found in FOLDERS.items() if scope.startswith(folder)), NOTHING)


def choose(waiting: Sequence[str], others: Iterable[str], *, limit: int = LIMIT, mixed: bool = False) -> str | None:
    """Return what a process runs next; None if everything that is waiting is too heavy now. `others` is what the other processes are running.

    Files without a weight wait until no other one fits, unless `mixed`: then the longest file is the next one, so that no long one is left for the end.
    """
    room = limit - sum(cost(one).weight for one in others)
    allowed = [one for one in waiting if cost(one).weight <= room or not cost(one).weight]
    return max(allowed, key=lambda one: (mixed or cost(one).weight > 0, cost(one).seconds), default=None)


class Lanes(LoadScopeScheduling):
    """Gives each process the next file that may run at the same time as those of the other processes."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        chosen = self._next(node)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        # a process that may be given nothing shuts down after its current file, because xdist never asks for it again
        if self.workqueue and self._next(node) is None and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _next(self, node: WorkerController) -> str | None:
        rest = self.config.getoption("part", None) == "rest"
        return choose(list(self.workqueue), self._of_others(node), limit=REST if rest else LIMIT, mixed=rest)

    def _of_others(self, node: WorkerController) -> list[str]:
        """Return what the other processes are running. Each counts with the heaviest of its unfinished files: it may have been given the next one."""
        units = [self.assigned_work[other] for other in self.nodes if other is not node]
        return [one for unit in units if (one := _heaviest(unit)) is not None]


def _heaviest(unit: Mapping[str, Mapping[str, bool]]) -> str | None:
    """Return the heaviest unfinished file of a process."""
    left = [one for one, tests in unit.items() if not all(tests.values())]
    return max(left, key=lambda one: cost(one).weight, default=None)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """Replace xdist's default load balancing. A mode that was chosen with --dist stays."""
    return Lanes(config, log) if config.getvalue("dist") == "load" else None
