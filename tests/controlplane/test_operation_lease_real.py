"""The Lease of operations with a real API server: what happens to its holder if that server, the only one, stays away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from relays import Relay
from server_kit import RunningServer

from kubewright.base.clock import SystemClock
from kubewright.base.errors import WaitTimeout
from kubewright.base.events import RecordingReporter
from kubewright.base.records import replace
from kubewright.base.wait import PollingWaiter
from kubewright.kube import lease_rules
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import LEASE
from kubewright.lifecycle.steps import health, operation_lease
from kubewright.lifecycle.steps.operation_lease import TERMS


@pytest.fixture
def relay(apiserver: RunningServer) -> Iterator[Relay]:
    made = Relay(apiserver.url)
    yield made
    made.close()


def _holder(api: KubeClient) -> str:
    return str(api.get(LEASE, TERMS.name, TERMS.namespace)["spec"].get(lease_rules.HOLDER) or "")


@pytest.mark.parametrize("away", ["refuses", "hangs"])
def test_the_holder_is_told_early_that_the_only_api_server_stays_away_and_goes_on_when_it_is_back(
    apiserver: RunningServer, admin: KubeClient, relay: Relay, away: str
) -> None:
    clock, reporter = SystemClock(), RecordingReporter()
    waiter = PollingWaiter(clock=clock, reporter=reporter)
    behind = replace(apiserver.access(), server=f"https://127.0.0.1:{relay.port}", tls_server_name=relay.host)
    patience = [600.0]  # on a busy machine
    with closing(KubeClient(behind, timeout=1.0)) as api:

        def comes_back() -> object:
            return waiter.until(lambda: health.unready(api), within=patience[-1], saying="the API server to answer")

        with operation_lease.held(
            api, identity="one", clock=clock, waiter=waiter, reporter=reporter, unanswered=0.5, comes_back=comes_back
        ) as lease:
            assert _holder(admin) == "one"
            if away == "refuses":
                relay.cut(shut=True)
            else:
                relay.swallow()
            patience.append(2.0)
            with pytest.raises(WaitTimeout, match="gave up waiting for the API server to answer"):
                lease.require()
            assert _holder(admin) == "one"  # nobody else has taken it
            relay.open()
            patience.pop()
            lease.require()
        assert (_holder(admin), lease.off) == ("", False)
