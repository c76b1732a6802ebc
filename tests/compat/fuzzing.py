"""How many examples the differential tests try, from which seed, and for how long they shrink a failure. `conftest` prints the seed."""

from __future__ import annotations

import os
import time
from typing import Any

from hypothesis import HealthCheck, Phase, settings

import parts

SEED = int(os.environ.get("KUBEWRIGHT_DIFFERENTIAL_SEED") or parts.seed(20261121))
"""The same in every run of a part of the suite, so that changes are judged on their own; `make fuzz` uses new ones."""
_EXAMPLES = os.environ.get("KUBEWRIGHT_DIFFERENTIAL_EXAMPLES", "")
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much, HealthCheck.data_too_large]
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink)
"""All but `explain`, which takes many runs and explains little."""


def examples(number: int) -> Any:
    """Try this many examples, divided between the parts of the suite; KUBEWRIGHT_DIFFERENTIAL_EXAMPLES overrides it for all tests."""
    return settings(
        max_examples=int(_EXAMPLES) if _EXAMPLES else parts.examples(number),
        deadline=None,
        print_blob=True,
        phases=_PHASES,
        suppress_health_check=_CHECKS,
        report_multiple_bugs=False,
    )


class Patience:
    """Ends shrinking after a minute: from then on only examples that have failed fail, and all others pass without being run."""

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
