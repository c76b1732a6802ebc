"""What a run of the tests says while it goes on."""

from progress import EVERY, Progress

MACHINES = [f"tests/machines/test_new.py::test_{number}" for number in range(9)]
UNIT = [f"tests/unit/base/test_new.py::test_{number}" for number in range(5)]


def made() -> Progress:
    found = Progress(100.0)
    found.expect([*MACHINES, *UNIT])
    return found


def test_the_remaining_time_is_the_sum_of_the_seconds_of_files():
    """45 seconds for the file of machines and 5 for the other one: nine tests of one count nine times as much as five of the other."""
    progress = made()
    for nodeid in MACHINES[:5]:
        progress.finish(nodeid)
    assert progress.line(100.0 + 600) == "50% of the work is done, about 10 minutes left"
    for nodeid in (*MACHINES[5:], *UNIT[:4]):
        progress.finish(nodeid)
    assert progress.line(100.0 + 4900) == "98% of the work is done, about 2 minutes left"
    progress.finish(UNIT[4])
    assert progress.line(100.0 + 5000) == "100% of the work is done, less than a minute left"


def test_a_line_comes_every_half_minute_and_not_before_anything_is_known():
    progress = made()
    assert progress.line(100.0 + EVERY) is None
    progress.finish(UNIT[0])
    assert progress.line(100.0 + EVERY - 1) is None
    assert progress.line(100.0 + EVERY) is not None
    assert progress.line(100.0 + 2 * EVERY - 1) is None
    assert progress.line(100.0 + 2 * EVERY) is not None


def test_files_that_were_not_expected_do_not_count():
    progress = made()
    progress.finish("tests/unit/base/test_other.py::test_a")
    assert progress.line(100.0 + EVERY) is None
