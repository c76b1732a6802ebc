"""What a hub forgets: old lines of the journal, and digests of requests that no token could repeat.

Nothing is swept while nothing is written.
"""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest
from hub_kit import STATE_KEY, cluster, decide, event, generation, keep
from test_hub_store import RECORD, TOKEN

from kubewright.base.clock import FakeClock, rfc3339
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import MOST_VERDICTS, Retention, Taken

NOW = FakeClock().now()
WEEK = timedelta(days=7)


def opened(directory, **given: object) -> SQLiteStore:
    retention = Retention(**given) if given else None
    return SQLiteStore(directory / "state.db", key=STATE_KEY, random=SeededRandom(8), retention=retention)


def at(days: float, **more: object):
    return event(at=rfc3339(NOW + timedelta(days=days)), **more)


def days_of(store) -> list[str]:
    return [one.event for one in store.journal()]


def test_old_lines_are_removed_with_the_next_writes(tmp_path):
    with closing(opened(tmp_path, age=WEEK)) as store:
        for day in range(12):
            store.add_event(at(day, event=str(day)))
        assert days_of(store) == [str(day) for day in range(4, 12)]
        store.add_event(at(12.5, event="later"))
        assert days_of(store) == [*map(str, range(6, 12)), "later"]
        assert [one.number for one in store.journal()] == [*range(7, 13), 13]


def test_a_backlog_of_old_lines_is_removed_gradually(tmp_path):
    with closing(opened(tmp_path)) as store:
        for day in range(20):
            store.add_event(at(day))
        assert len(store.journal()) == 20
    with closing(opened(tmp_path, age=WEEK)) as store:
        assert len(store.journal()) == 20
        counts = []
        for _ in range(20):
            store.add_event(at(100))
            counts.append(len(store.journal()))
    assert counts[0] < 20
    assert all(later <= max(before, 20) for before, later in itertools.pairwise(counts))
    assert counts[-1] == 20  # the new ones


def test_the_journal_never_exceeds_its_limit(tmp_path):
    with closing(opened(tmp_path, age=WEEK, lines=50)) as store:
        for number in range(400):
            store.add_event(at(0, event=f"{number}"))
        assert days_of(store) == [str(number) for number in range(350, 400)]


def test_the_latest_decisions_of_administrators_are_kept(tmp_path):
    with closing(opened(tmp_path)) as store, closing(sqlite3.connect(store.path)) as db:
        decide(store, "b", "u0", approved=True)
        decide(store, "a", "u0", approved=True)
        with db:
            db.executemany("INSERT INTO verdicts VALUES ('a', ?, 1, x'')", [(f"u{number}",) for number in range(1, MOST_VERDICTS)])
        assert store.verdict("a", "u0") is True
        decide(store, "a", "new", approved=False)
        assert [store.verdict("a", one) for one in ("u0", "new")] == [None, False]
        assert db.execute("SELECT count(*) FROM verdicts WHERE cluster = 'a'").fetchone() == (MOST_VERDICTS,)
        assert store.verdict("b", "u0") is True


def test_a_repeated_request_is_refused_while_a_token_could_send_it(tmp_path):
    with closing(opened(tmp_path, age=WEEK)) as store:
        store.save_cluster(cluster(), at(0))
        first, now = replace(TOKEN, expires=rfc3339(NOW + timedelta(days=10))), generation(store)
        store.save_token(first, at(0), generation=now)
        second = replace(TOKEN, token=replace(TOKEN.token, id="abcdeg"), expires=rfc3339(NOW + timedelta(days=3)))
        store.save_token(second, at(0), generation=now)
        keep(store, RECORD, at(1), digest="d1")
        store.remove_token(first, at(1))
        copy = replace(RECORD, node="other", request="u2", names=())
        for day in (2, 5, 9.9):
            with pytest.raises(Taken, match="a copy of an earlier one"):
                keep(store, copy, at(day), digest="d1")
        assert store.first_request("a", "d1") == "u1"
        keep(store, replace(RECORD, node="third", request="u3", names=()), at(11), digest="d3")
        assert (store.first_request("a", "d1"), store.first_request("a", "d3")) == ("", "u3")


def test_digests_stay_while_a_token_never_expires(tmp_path):
    with closing(opened(tmp_path, age=WEEK)) as store:
        store.save_token(replace(TOKEN, expires=""), at(0))
        store.keep(RECORD, at(1), digest="d1")
        store.keep(replace(RECORD, node="other", request="u2", names=()), at(10_000), digest="d2")
        assert store.first_request("a", "d1") == "u1"
