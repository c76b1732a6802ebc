"""Names on the machine that are bytes in no encoding: of interfaces, processes, files, mounts."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from busy import HANGS
from kubewright.apis.machine import Layout
from kubewright.base.clock import FakeClock
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.host.locks import Lock
from kubewright.host.network.interfaces import RealNetwork, default_interfaces, parse_inet6
from kubewright.host.overlay import OverlayHost, materialise
from kubewright.host.processes import RealProcesses
from kubewright.host.real import RealHost

NAMES = [b"caf\xe9", b"\xff\xfe", "é".encode(), "a\u2003b".encode(), "a\u2028b".encode(), b"a\x1cb"]


@pytest.mark.parametrize("name", NAMES)
def test_an_interface_may_have_any_name_of_the_kernel(tmp_path, name):
    (tmp_path / "net").mkdir()
    head = b"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
    (tmp_path / "net/route").write_bytes(head + name + b"\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
    (tmp_path / "net/ipv6_route").write_bytes(
        b"0" * 32 + b" 00 " + b"0" * 32 + b" 00 " + b"f" * 32 + b" 00000400 00000001 00000000 00000003 " + name.rjust(8) + b"\n"
    )
    (tmp_path / "net/if_inet6").write_bytes(b"fd000000000000000000000000000001 02 40 00 80 " + name.rjust(8) + b"\n")
    network = RealNetwork(proc=tmp_path)
    found = {name: network._text(f"net/{name}") for name in ("route", "ipv6_route", "if_inet6")}
    assert default_interfaces(found["route"], found["ipv6_route"]) == {4: [os.fsdecode(name)], 6: [os.fsdecode(name)]}
    assert parse_inet6(found["if_inet6"]) == [(os.fsdecode(name), "fd00::1")]
    assert network.default_address(family=6) is None  # the interface does not exist, so its flags cannot be read


@pytest.mark.parametrize("name", NAMES)
def test_a_process_may_have_any_name(tmp_path, name):
    raw = b"42 (" + name + b") S 1 42 42 0 -1 4194304 1 0 0 0 7 5 0 0 20 0 1 0 1000 0 0\n"
    (tmp_path / "42").mkdir()
    (tmp_path / "42/stat").write_bytes(raw)
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("boot\n")
    processes = RealProcesses(proc=tmp_path)
    found = processes.of(42)
    assert found is not None
    assert (found.pid, found.start_time) == (42, 1000)


def test_a_process_is_found_by_a_variable_that_is_not_utf_8():
    value = os.fsdecode(NAMES[0])
    with subprocess.Popen(["sleep", "1000"], env={"KUBEWRIGHT_TEST_NAME": value}) as started:
        try:
            eventually(lambda: [one.pid for one in RealProcesses().marked({"KUBEWRIGHT_TEST_NAME": value})] == [started.pid])
        finally:
            started.kill()


def eventually(found: Callable[[], bool]) -> None:
    """Wait for the program: before it is loaded, its process has our environment."""
    end = time.monotonic() + HANGS
    while not found():
        assert time.monotonic() < end, "it is not found"
        time.sleep(0.02)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_listed_written_planned_and_removed_by_any_name(tmp_path, name):
    called = os.fsdecode(name)
    layout = Layout.below(PurePosixPath(tmp_path))
    host = RealHost(layout=layout, files=Files(durable=False), environment={})
    file = File(path=layout.pki / called, content=b"x")
    overlay = OverlayHost(host)
    overlay.ensure(file)
    assert overlay.entries(layout.pki) == [file.path]
    assert [change.target for change in materialise(overlay, PurePosixPath(tmp_path / "dry"), writer=host)] == [
        f"file {tmp_path}/dry/{called}"
    ]
    assert host.ensure(file)
    assert host.entries(layout.pki) == [file.path]
    assert host.empty(layout.pki).reason == called
    assert list(Path(layout.pki).iterdir()) == []


def test_a_lock_names_its_purpose(tmp_path):
    path, doing = PurePosixPath(tmp_path / "lock"), f"up of {os.fsdecode(NAMES[0])}"
    with Lock(path, doing=doing, clock=FakeClock()):
        assert b"caf\xe9" in Path(path).read_bytes()
