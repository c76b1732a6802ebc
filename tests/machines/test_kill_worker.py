"""A worker's `join` that is killed or interrupted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kill_stages import WorkerJoin
from kill_tests import Kills

from kubewright.machines.parts import Parts


@pytest.fixture(scope="module")
def stage(parts: Parts) -> Iterator[WorkerJoin]:
    made = WorkerJoin(parts)
    yield made
    made.close()


class TestWorkerJoin(Kills):
    boundaries = 2
    moments = 1
