"""Which examples hypothesis generates: the same in each run of a test, so that a failure is caused by the change under test.

By default hypothesis would begin with another seed in each run. It would also mix in constants of the modules that happen to be imported, so that
even with one seed, the examples of a test would depend on which tests the same process ran before, and on constants anywhere in the package.

`--hypothesis-seed=N` tries other examples, with those constants.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the profile before `tests/parts.py` derives its own, and before test modules are imported.

    There is no deadline and no limit for generation: on a busy machine any example may take long.
    """
    others = config.getoption("--hypothesis-seed", None) is not None
    if not others:
        providers._get_local_constants = providers.Constants  # there is no setting for it
    settings.register_profile("kubewright", derandomize=not others, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("kubewright")
