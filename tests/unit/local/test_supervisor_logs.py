"""Logs: rotation while a process writes, the last lines, reading the tail, from a time on, and across rotations."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervisor_kit import Machine, eventually, ready, script

from busy import HANGS
from kubewright.base.clock import FakeClock
from kubewright.local.supervisor import logs
from kubewright.local.supervisor.logs import KEEP, parts, read_log, rotate, rotated, tail, time_of

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FOLLOW_EVERY", 0.005)


def numbered(*numbers: int) -> list[bytes]:
    return [f"line {number}\n".encode() for number in numbers]


def test_a_small_log_is_not_rotated(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    assert not rotate(log)
    log.write_bytes(b"x" * 99)
    assert not rotate(log, limit=100)
    assert parts(log) == [log]


def test_rotation_keeps_two_parts_and_the_writer_continues(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(4):
            writer.write(f"line {number}\n".encode())
            assert rotate(log, limit=1)
        writer.write(b"line 4\n")
    assert KEEP == 2
    assert [path.read_bytes() for path in parts(log)] == [b"line 2\n", b"line 3\n", b"line 4\n"]
    assert {path.stat().st_mode & 0o777 for path in parts(log)[:2]} == {0o600}


@pytest.mark.parametrize(
    ("content", "lines", "start", "found"),
    [
        (b"", 5, 0, []),
        (b"a\nb\nc\n", 2, 0, ["b", "c"]),
        (b"a\nb\nc", 5, 2, ["b", "c"]),
        (b"a\nb\n", 0, 0, []),
        (b"a\n", 5, 99, ["a"]),
        (b"\x1b[31mred\x1b[0m \xff\n", 1, 0, ["�[31mred�[0m �"]),
        (b"y" * 3000 + b"\n", 1, 0, ["y" * 2000 + "…"]),
    ],
)
def test_the_last_lines_of_a_log_are_read(tmp_path: Path, content: bytes, lines: int, start: int, found: list[str]) -> None:
    log = tmp_path / "etcd.log"
    log.write_bytes(content)
    assert tail(log, lines=lines, start=start) == found


def test_the_last_lines_of_a_huge_log_begin_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_bytes(b"".join(numbered(*range(100_000))))
    found = tail(log, lines=100_000)
    assert found[-1] == "line 99999"
    assert 5_000 < len(found) < 10_000
    assert all(line.startswith("line ") for line in found)
    assert tail(tmp_path / "absent", lines=3) == []


async def test_reading_gives_all_parts_in_order(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    rotated(log, 2).write_bytes(b"line 0\nline")
    rotated(log, 1).write_bytes(b" 1\n")
    log.write_bytes(b"line 2\nrest")
    assert [line async for line in read_log(log, clock=FakeClock())] == [*numbered(0, 1, 2), b"rest"]
    assert [line async for line in read_log(log, clock=FakeClock(), tail=1)] == [b"rest"]
    assert [line async for line in read_log(log, clock=FakeClock(), tail=0)] == []


async def test_reading_from_a_time_on_keeps_the_lines_that_belong_to_it(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    lines = [
        b"no time yet\n",
        b"I0301 10:00:00.000000       1 early.go:1] early\n",
        b"  goroutine of early\n",
        b"I0301 11:00:00.500000       1 late.go:1] late\n",
        b"  goroutine of late\n",
        b'{"level":"info","ts":"2026-03-01T11:30:00.000000Z","msg":"later"}\n',
    ]
    log.write_bytes(b"".join(lines))
    found = [line async for line in read_log(log, clock=FakeClock(NOW), since=NOW - timedelta(hours=1))]
    assert found == [lines[0], *lines[3:]]


async def test_following_survives_rotations_and_ends_with_the_component(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_bytes(b"".join(numbered(0)))
    seen: list[bytes] = []
    over = False

    async def follow() -> None:
        seen.extend([line async for line in read_log(log, clock=FakeClock(), follow=True, ended=lambda: over)])

    task = asyncio.create_task(follow())
    with log.open("ab", buffering=0) as writer:
        for number in range(1, 40):
            writer.write(f"line {number}\n".encode())
            if number % 9 == 0:
                await asyncio.to_thread(rotate, log, limit=1)
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.001)
        writer.write(b"unfinished")
    over = True
    await asyncio.wait_for(task, HANGS)
    assert seen == [*numbered(*range(40)), b"unfinished"]


async def test_following_continues_after_the_file_was_truncated(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_bytes(b"".join(numbered(0, 1)))
    lines = read_log(log, clock=FakeClock(), follow=True)
    assert [await anext(lines), await anext(lines)] == numbered(0, 1)
    log.write_bytes(b"".join(numbered(2)))
    assert await asyncio.wait_for(anext(lines), HANGS) == numbered(2)[0]
    await lines.aclose()


async def test_a_component_writes_on_while_its_log_is_rotated(tmp_path: Path) -> None:
    machine, enough = Machine(tmp_path), tmp_path / "enough"
    loop = script(f"n=0; while [ ! -e {enough} ]; do echo line $n; n=$((n+1)); sleep 0.001; done; echo end; exec sleep 1000")
    async with machine.supervised(loop) as supervisor:
        await ready(supervisor)
        log = machine.logs / "etcd.log"
        lines = supervisor.read_log("etcd", follow=True)
        seen: list[bytes] = []
        while seen[-1:] != [b"end\n"]:
            seen.append(await asyncio.wait_for(anext(lines), HANGS))
            if seen[-1] not in log.read_bytes().splitlines(keepends=True)[100:]:
                continue  # two rotations between two reads would be one to the reader
            if len(parts(log)) < 3:
                assert rotate(log, limit=1)
            else:
                enough.touch()
        await lines.aclose()
        await eventually(lambda: supervisor.last_lines("etcd", lines=1) == ["end"])
    assert len(parts(log)) == 3
    assert b"".join(seen) == b"".join(part.read_bytes() for part in parts(log))
    numbers = [int(line.split()[1]) for line in seen[:-1]]
    assert numbers == sorted(set(numbers))
    gaps = sum(later != earlier + 1 for earlier, later in itertools.pairwise([-1, *numbers]))
    assert gaps <= 2  # lines that are written while the file is being cut may be lost, once for each rotation


async def test_the_log_of_an_unknown_component_is_an_error(tmp_path: Path) -> None:
    async with Machine(tmp_path).supervised() as supervisor:
        with pytest.raises(KeyError):
            supervisor.read_log("unknown")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"I0301 11:59:59.123456       1 x.go:1] x", datetime(2026, 3, 1, 11, 59, 59, 123456, UTC)),
        (b"E1231 23:00:00.000000       1 x.go:1] x", datetime(2025, 12, 31, 23, tzinfo=UTC)),
        (b"W0302 11:00:00.000000       1 x.go:1] x", datetime(2026, 3, 2, 11, tzinfo=UTC)),
        (b"I0229 11:00:00.000000       1 x.go:1] x", None),
        (b"I9999 11:00:00.000000       1 x.go:1] x", None),
        (b'{"level":"warn","ts":"2026-03-01T11:30:00.5Z","caller":"a"}', datetime(2026, 3, 1, 11, 30, 0, 500000, UTC)),
        (b'{"level":"warn","ts":"2026-03-01T11:30:00.000123+0000"}', datetime(2026, 3, 1, 11, 30, 0, 123, UTC)),
        (b'{"ts":"2026-03-01T11:30:00"}', None),
        (b'{"level":"warn","ts":"nonsense nonsense nonsense"}', None),
        (b"hello", None),
        (b"", None),
    ],
)
def test_times_of_lines(line: bytes, expected: datetime | None) -> None:
    assert time_of(line, now=NOW) == expected


@given(st.binary(max_size=80) | st.from_regex(rb"I\d{4} \d\d:\d\d:\d\d\.\d{6} x") | st.from_regex(rb'\{"ts":"[0-9T:.+\-]{19,35}Z?"'))
def test_no_line_breaks_the_reading_of_times(line: bytes) -> None:
    found = time_of(line, now=NOW)
    assert found is None or found.tzinfo is not None
