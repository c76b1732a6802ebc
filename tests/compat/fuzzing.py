"""How much the differential tests try, from which seed, and for how long they make a failure smaller. `conftest` prints the seed."""

from __future__ import annotations

import os
import time
from typing import Any

from hypothesis import HealthCheck, Phase, settings

import parts

SEED = int(os.environ.get("KUBEWRIGHT_DIFFERENTIAL_SEED") or parts.seed(20261121))
"""The same in every run of a part of the suite, so that a change is judged by itself; `make fuzz` goes on with fresh ones."""
_EXAMPLES = os.environ.get("KUBEWRIGHT_DIFFERENTIAL_EXAMPLES", "")
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much, HealthCheck.data_too_large]
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink)
"""All but `explain`, which takes many runs to say little."""


def examples(number: int) -> Any:
    """Try so many, divided between the parts of the suite; KUBEWRIGHT_DIFFERENTIAL_EXAMPLES says otherwise for all tests."""
    return settings(
        max_examples=int(_EXAMPLES) if _EXAMPLES else parts.examples(number),
        deadline=None,
        print_blob=True,
        phases=_PHASES,
        suppress_health_check=_CHECKS,
        report_multiple_bugs=False,
    )


class Patience:
    """Ends the search for a smaller failure after a minute: from then on only what has failed fails, everything else passes unseen."""

    def __init__(self, seconds: float = 60) -> None:
        self._seconds = seconds
        self._failed: set[str] = set()
        self._until = float("inf")

    def keep(self, text: str) -> None:
        """Remember a failure. The first one starts the clock."""
        if not self._failed:
            self._until = time.monotonic() + self._seconds
        self._failed.add(text)

    def is_over(self, text: str) -> bool:
        return time.monotonic() > self._until and text not in self._failed
