"""The state of a hub that several processes open at a time, before there is one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from kubewright.base.clock import FakeClock, rfc3339
from kubewright.base.randomness import SystemRandom
from kubewright.cli import hub_state
from kubewright.cli.parser import parse
from kubewright.enrollment.store import Event, JoinToken
from kubewright.tokens import strings

COUNT = 6
ROUNDS = 5


def test_those_who_come_first_together_make_one_state_with_one_key(tmp_path):
    for number in range(ROUNDS):
        place = tmp_path / str(number)
        parsed = parse(["hub", "token", "list", "--state", f"{place}/state.db", "--key-file", f"{place}/state.key"], program="kubewright")
        together = threading.Barrier(COUNT)

        def write(index: int, parsed=parsed, together=together) -> None:
            together.wait()
            with closing(hub_state.open_store(parsed)) as store:
                event = Event(at=rfc3339(FakeClock().now()), cluster="a", event="test", details={})
                store.save_token(JoinToken(cluster="a", token=strings.generate(SystemRandom())), event)

        with ThreadPoolExecutor(COUNT) as pool:
            list(pool.map(write, range(COUNT)))
        with closing(hub_state.open_store(parsed)) as store:
            assert len(store.tokens("a")) == COUNT
        assert sorted(path.name for path in place.iterdir()) == ["state.db", "state.key"]
