"""The daemon of a cluster of machines: who may call it, and what it keeps running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kubewright.base.clock import SystemClock
from kubewright.base.errors import DocumentError, HostError, PortInUse
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.host.processes import Identity
from kubewright.http import loop, unix
from kubewright.http.serving import serve_unix
from kubewright.local import published, record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.whole import images
from kubewright.local.whole.services import client, control_server
from kubewright.local.whole.services.forwarding import Forwarder
from kubewright.local.whole.services.places import runtime
from kubewright.local.whole.services.states import MachineStates
from kubewright.machines.places import disks
from loopback import free_port
from other_user import readable

__all__ = ["readable"]
OWNER, STRANGER = 12345, 12346
CALL = """\
import socket, sys
method, target, body = sys.argv[2:5]
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[1])
    sock.sendall(f"{method} {target} HTTP/1.0\\r\\nhost: x\\r\\ncontent-length: {len(body)}\\r\\n\\r\\n{body}".encode())
    print(sock.makefile("rb").readline().decode().split()[1])
"""
"""A call with nothing but the standard library: other users cannot read this clone."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can act as another user")


def called(path: Path, user: int, *words: str) -> str:
    """Return the status of a call as another user, or the last line of its error."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", CALL, str(path), *words], user=user, capture_output=True, text=True, check=False, cwd="/"
    )
    return done.stdout.strip() or done.stderr.splitlines()[-1]


def serving(directory: Path, test: Callable[[Path], Awaitable[None]], *, owner: int = OWNER, paths: ClusterPaths | None = None) -> None:
    directory.chmod(0o711)

    async def run() -> None:
        own, cluster = ClusterPaths(directory), paths or ClusterPaths(directory / "none")
        states, forwarder = MachineStates(cluster), Forwarder(list)
        states.expect({"none-control-plane": ["192.0.2.7"]})
        server = await serve_unix(control_server.routes(own, cluster, states, forwarder), path=own.socket, owner=owner)
        try:
            await test(directory / "control.sock")
        finally:
            await forwarder.close()
            await server.stop()

    loop.run(run)


def test_only_the_owner_and_root_may_call_the_daemon(readable: Path) -> None:
    ports = json.dumps({"ports": [f"127.0.0.1:{free_port()}:30080/tcp"]})

    async def test(path: Path) -> None:
        assert await asyncio.to_thread(called, path, OWNER, "PUT", "/ports", ports) == "200"
        assert await asyncio.to_thread(called, path, OWNER, "PUT", "/images", '{"archive": "/none"}') == "500"  # no machine runs
        assert await asyncio.to_thread(called, path, OWNER, "PUT", "/machines", '{"machines": {}}') == "403"
        for verb, machine in (("remove", "none-control-plane"), ("kill", "--help"), ("kill", "other-control-plane")):
            asked = json.dumps({"change": verb, "machine": machine, "form": "text"})
            assert await asyncio.to_thread(called, path, OWNER, "PUT", "/machine", asked) == "403"
        assert await asyncio.to_thread(called, path, 0, "PUT", "/machines", '{"machines": {}}') == "200"
        assert "PermissionError" in await asyncio.to_thread(called, path, STRANGER, "GET", "/status", "")
        assert (await asyncio.to_thread(path.stat)).st_uid == OWNER

    if called(readable / "none", OWNER, "GET", "/status", "").startswith("FileNotFoundError"):
        serving(readable, test)
    else:
        pytest.skip("needs a Python interpreter that other users may run")


def test_the_hint_for_a_cluster_without_a_running_machine_names_it(tmp_path: Path) -> None:
    async def test(path: Path) -> None:
        answer = await asyncio.to_thread(unix.request, "PUT", path, "/images", body=b'{"archive": "/none"}', timeout=60.0)
        assert json.loads(answer.body)["remedy"] == "`sudo kubewright up --name dev` starts them"

    serving(tmp_path, test, owner=0, paths=ClusterPaths(tmp_path / "dev"))


def test_archives_are_read_as_the_user_who_loads_them(readable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(readable))
    disks().mkdir(parents=True)
    archive = readable / "archive.tar"
    archive.write_bytes(b"no archive")
    with pytest.raises(DocumentError, match="is not a tar archive"):
        images.load_as(OWNER, [], str(archive))
    archive.chmod(0o600)
    with pytest.raises(DocumentError, match=r"cannot read .*: Permission denied"):
        images.load_as(OWNER, [], str(archive))


def test_a_directory_that_others_may_change_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    async def run() -> None:
        with pytest.raises(HostError, match="with mode 0711"):
            await serve_unix((), path=tmp_path / "control.sock", owner=OWNER)

    loop.run(run)


def test_the_client_reports_a_port_that_is_taken_and_removes_what_it_made(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    own = runtime(paths)
    own.root.mkdir(mode=0o711, parents=True)
    assert client.status(paths) == {}
    with pytest.raises(HostError, match='the daemon of cluster "dev" does not run') as absent:
        client.load(paths, tmp_path / "app.tar")
    assert absent.value.remedy == "`sudo kubewright up --name dev` starts it"

    async def test(_: Path) -> None:
        with socket.create_server(("127.0.0.1", free_port())) as taken:
            port = published.parse(f"{taken.getsockname()[1]}:1")
            with pytest.raises(PortInUse) as caught:
                await asyncio.to_thread(client.publish, paths, [port])
        assert f"(pid {os.getpid()})" in str(caught.value)
        assert caught.value.remedy == "stop that process, or publish another port of the host"
        await asyncio.to_thread(client.publish, paths, [port])
        assert (await asyncio.to_thread(client.status, paths))["ports"] == [str(port)]

    try:
        serving(own.root, test)
    finally:
        client.stop(paths)
    assert not own.root.exists()


def test_the_daemon_runs_commands_for_machines_and_returns_their_output(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "none")
    own = runtime(paths)
    own.root.mkdir(mode=0o711, parents=True)
    with pytest.raises(HostError, match='the daemon of cluster "none" does not run'):
        client.change(paths, "kill", "none-control-plane", form="json")

    async def test(_: Path) -> None:
        ended = await asyncio.to_thread(client.change, paths, "kill", "none-control-plane", form="json")
        assert (ended["code"], ended["out"], 'there is no cluster "none"' in ended["err"]) == (2, "", True), ended

    try:
        serving(own.root, test, paths=paths)
    finally:
        client.stop(paths)


def test_a_daemon_is_started_once_and_one_without_a_record_is_replaced(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
    try:
        client.ready(paths, client.start(paths, owner=0), waiter=waiter)
        first = client.status(paths)["pid"]
        assert client.start(paths, owner=0) is None
        runtime(paths).daemon_record.unlink()
        client.ready(paths, client.start(paths, owner=0), waiter=waiter)
        assert client.status(paths)["pid"] != first
        assert not Path(f"/proc/{first}").exists()
    finally:
        client.stop(paths)
    assert (client.status(paths), runtime(paths).root.exists()) == ({}, False)


def test_the_daemon_does_not_ignore_what_up_was_started_to_ignore(tmp_path: Path) -> None:
    paths, numbers = ClusterPaths(tmp_path / "dev"), (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    former = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        client.ready(paths, client.start(paths, owner=0), waiter=PollingWaiter(clock=SystemClock(), reporter=SilentReporter()))
        lines = Path(f"/proc/{client.status(paths)['pid']}/status").read_text().splitlines()
        [ignored] = [int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")]
        assert [number for number in numbers if ignored >> (number - 1) & 1] == []
    finally:
        for number, handler in zip(numbers, former, strict=True):
            signal.signal(number, handler)
        client.stop(paths)


def test_a_daemon_that_ran_and_ended_is_not_waited_for(tmp_path: Path) -> None:
    paths, waiter = ClusterPaths(tmp_path / "dev"), Unwaiting()
    with pytest.raises(HostError, match='the daemon of cluster "dev" does not run'):
        client.ready(paths, None, waiter=waiter)


class Unwaiting:
    """A waiter that looks once."""

    def until(self, condition: Callable[[], str | None], **_: object) -> None:
        assert condition() is None, "it would be waited for"


def test_a_cluster_does_not_outlive_the_process_that_it_belongs_to(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    paths.root.mkdir(mode=0o700)
    first = LocalMachineRecord(name="dev-control-plane", address="172.30.4.11")
    record.save(ClusterRecord(name="dev", id="0" * 32, machines=(first,), kind=record.MACHINES, made=True), paths.record)
    waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
    with subprocess.Popen(["sleep", "1000"]) as owner:
        identity = Identity.of(owner.pid)
        assert identity is not None
        try:
            client.ready(paths, client.start(paths, owner=0, outlived=str(identity)), waiter=waiter)
            assert paths.record.exists()
            owner.kill()
            waiter.until(lambda: "it is there" if paths.root.exists() else None, within=600, saying="the cluster to be removed")
            waiter.until(lambda: "it is there" if runtime(paths).root.exists() else None, within=600, saying="the daemon to be gone")
        finally:
            owner.kill()
            client.stop(paths)
