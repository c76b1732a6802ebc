"""Which tests run beside which, where a run has several processes (pytest-xdist, `make test`).

A file stays together, for its fixtures. tests/controlplane stays together as a whole: its tests share an API server, and local clusters that are
down want their addresses back. At most two files on whole machines run at a time: each has up to five machines.
What takes long begins first, so that nothing long is left at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TOGETHER: Final = "tests/controlplane/"
MACHINES: Final = "tests/machines/"
BEDS: Final = 2
"""Files on whole machines that run at a time."""
LONG: Final = (
    "test_kill_control_plane.py",
    "test_kill_init.py",
    "test_agent_machines.py",
    "test_interop_machines.py",
    "test_join_control_plane.py",
    "test_reset_machines.py",
    "test_faults_starting.py",
    "test_join_worker.py",
    "test_faults_joining.py",
    "test_kill_worker.py",
)
"""Files on whole machines that take a minute and more, the longest first."""


def scope(nodeid: str) -> str:
    """Return what a test stays together with."""
    path = nodeid.partition("::")[0]
    return TOGETHER if path.startswith(TOGETHER) else path


def choose(waiting: Sequence[str], others: Iterable[str]) -> str | None:
    """Return what a process runs next, None if what is left must wait. `others` is what the other processes have to do."""
    beds = sum(one.startswith(MACHINES) for one in others)
    allowed = [one for one in waiting if not one.startswith(MACHINES) or beds < BEDS]
    return min(allowed, key=_rank, default=None)


def _rank(scope: str) -> tuple[int, int]:
    name = scope.removeprefix(MACHINES)
    return (0, 0) if scope == TOGETHER else (1, LONG.index(name) if name in LONG else len(LONG)) if name != scope else (2, 0)


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
        return [one for unit in units if (one := _at_work(unit)) is not None]


def _at_work(unit: Mapping[str, Mapping[str, bool]]) -> str | None:
    """Return one thing of a process that is not done, whole machines before others: it is at them or will be."""
    left = [one for one, tests in unit.items() if not all(tests.values())]
    return max(left, key=lambda one: one.startswith(MACHINES), default=None)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """Take the place of plain load balancing; what somebody names on the command line stays."""
    return Lanes(config, log) if config.getvalue("dist") == "load" else None
