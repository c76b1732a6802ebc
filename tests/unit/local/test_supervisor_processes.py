"""The supervisor with real, tiny processes: start, end, kill, change, breakage, removal, order."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from supervisor_kit import (
    AT_ONCE,
    Machine,
    alive,
    descriptors,
    environment_of,
    eventually,
    is_ready,
    of_session,
    pod,
    ready,
    script,
    state_of,
    until,
)

from busy import HANGS
from kubewright.base.events import State
from kubewright.local.supervisor import termination
from kubewright.local.supervisor.process import DOWN, StopStage
from kubewright.local.supervisor.state import ComponentPhase


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(termination, "SECOND", 0.05)
    return Machine(tmp_path)


async def test_a_manifest_becomes_a_process_and_its_removal_ends_it(machine: Machine) -> None:
    async with machine.supervised() as supervisor:
        path = machine.write(pod())
        await ready(supervisor)
        state = state_of(supervisor)
        assert (state.restarts, state.pod, state.container, state.adopted) == (0, "etcd", "etcd", False)
        await eventually(lambda: state_of(supervisor).rss_bytes > 0)  # none at the instant of exec
        assert os.getsid(state.pid) == os.getpgid(state.pid) == state.pid
        path.unlink()
        await eventually(lambda: not alive(state.pid))
        await eventually(lambda: supervisor.snapshot() == [])
        assert list(machine.run.iterdir()) == []


async def test_phases_are_reported_in_order(machine: Machine) -> None:
    async with machine.supervised(pod()) as supervisor:
        await ready(supervisor)
    told = [event for event in machine.reporter.events if isinstance(event, State)]
    assert [event.state for event in told] == ["Running", "Ready", "Stopped"]
    assert {event.subject for event in told} == {"node1/etcd"}


async def test_a_process_gets_only_what_its_manifest_says(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "canary")
    manifest = script("env; umask; pwd; ls -l /proc/$$$$/fd; exec sleep 1000", container={"env": [{"name": "WANTED", "value": "yes"}]})
    inherited, other = os.pipe()
    os.set_inheritable(inherited, True)
    async with machine.supervised(manifest) as supervisor:
        await eventually(lambda: "/dev/null" in "".join(supervisor.last_lines("etcd", lines=50)))
        await asyncio.sleep(0.05)
        said = supervisor.last_lines("etcd", lines=50)
        state = state_of(supervisor)
        environment = environment_of(state.pid)
    os.close(inherited)
    os.close(other)
    directory = str(machine.run / "etcd")
    assert len(environment.pop("KUBEWRIGHT_LAUNCH")) == 16
    assert environment.pop("PWD") == directory  # of the shell
    assert environment == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": directory,
        "TMPDIR": directory,
        "TZ": "UTC",
        "WANTED": "yes",
        "KUBEWRIGHT_CLUSTER": str(machine.root),
        "KUBEWRIGHT_CLUSTER_ID": machine.mark.id,
        "KUBEWRIGHT_MACHINE": "node1",
        "KUBEWRIGHT_COMPONENT": "etcd",
        "KUBEWRIGHT_MANIFEST": state.manifest_hash,
    }
    assert "0077" in said
    assert directory in said
    assert not any("canary" in line or "pipe:" in line for line in said)


async def test_a_killed_process_is_restarted_at_once(machine: Machine) -> None:
    async with machine.supervised(pod()) as supervisor:
        await ready(supervisor)
        first = state_of(supervisor).pid
        os.kill(first, signal.SIGKILL)
        state = await until(supervisor, lambda state: is_ready(state) and state.pid != first)
        assert state.restarts == 1
        assert state.last_exit is not None
        assert (state.last_exit.signal, state.last_exit.code, state.last_exit.reason) == (signal.SIGKILL, None, "killed by SIGKILL")


async def test_a_changed_manifest_restarts_and_a_comment_does_not(machine: Machine) -> None:
    async with machine.supervised(script("echo one; exec sleep 1000")) as supervisor:
        await ready(supervisor)
        before = state_of(supervisor)
        machine.write(script("echo one; exec sleep 1000") | {"status": {}} | {"status": {}})
        changed = await until(supervisor, lambda state: is_ready(state) and state.manifest_hash != before.manifest_hash)
        assert not alive(before.pid)
        assert changed.restarts == 0
        text = (machine.root / "manifests" / "etcd.yaml").read_text()
        machine.write(text.replace(": ", ":   "), "etcd")
        await asyncio.sleep(0.1)
        assert state_of(supervisor).pid == changed.pid


async def test_the_last_of_many_changes_is_running(machine: Machine) -> None:
    async with machine.supervised(script("exec sleep 1000")) as supervisor:
        await ready(supervisor)
        for number in range(10):
            machine.write(script(f"echo number {number}; exec sleep 1000"))
            await asyncio.sleep(0.005)
        await eventually(lambda: "number 9" in supervisor.last_lines("etcd"))
        await ready(supervisor)
        pid = state_of(supervisor).pid
    assert not alive(pid)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ('{"apiVersion": "v1", "kind": "Pod"', "etcd.yaml"),
        ('{"apiVersion": "v1", "kind": "Deployment", "metadata": {"name": "etcd"}}', "kind: Invalid value"),
        ("", "must be a Pod object"),
        (pod("etcd", "unknown"), 'spec.containers[0].command[0]: Unsupported value: "unknown": programs of this machine'),
    ],
)
async def test_a_broken_manifest_changes_only_the_reason(machine: Machine, broken, said: str) -> None:
    async with machine.supervised(pod()) as supervisor:
        await ready(supervisor)
        before = state_of(supervisor)
        machine.write(broken, "etcd")
        state = await until(supervisor, lambda state: said in state.reason)
        assert (state.pid, state.phase, state.restarts) == (before.pid, ComponentPhase.READY, 0)
        machine.write(pod())
        state = await until(supervisor, lambda state: not state.reason)
        assert state.pid == before.pid


async def test_a_manifest_that_never_worked_is_shown_by_its_file(machine: Machine) -> None:
    machine.write("{", "odd")
    async with machine.supervised() as supervisor:
        state = state_of(supervisor, "odd")
        assert (state.phase, state.pid) == (ComponentPhase.WAITING, None)
        assert "odd.yaml" in state.reason
        assert list(supervisor.refused()) == ["odd"]
        assert "odd.yaml" in supervisor.refused()["odd"]


async def test_a_component_that_fails_because_of_a_busy_port_is_reported_in_its_own_words(machine: Machine) -> None:
    words = "bind: address already in use"
    never = {"readinessProbe": {"tcpSocket": {"port": 1}}}
    async with machine.supervised(script(f"echo starting; echo {words} >&2; exit 7", container=never)) as supervisor:
        state = await until(supervisor, lambda state: state.phase is ComponentPhase.CRASH_LOOP)
        assert state.reason.startswith(f"exit code 7: {words} (next start after ")
        assert supervisor.last_lines("etcd") == ["starting", words]
        assert state.last_exit is not None
        assert (state.last_exit.code, state.last_exit.last_lines) == (7, ("starting", words))
        assert supervisor.last_lines("etcd", lines=1) == [words]


async def test_a_retry_does_not_wait_for_the_end_of_the_back_off(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination, "FIRST", 0.01)
    monkeypatch.setattr(termination, "SECOND", 50)
    cause = machine.root / "cause"
    cause.touch()
    probe = {"readinessProbe": {"tcpSocket": {"port": 1}}}
    failing = script(f"[ ! -e {cause} ] || exit 1; exec sleep 1000", container=probe)
    async with machine.supervised(failing) as supervisor:
        await until(supervisor, lambda state: "next start after 50 s" in state.reason)
        cause.unlink()
        supervisor.retry()
        await until(supervisor, lambda state: state.phase is ComponentPhase.RUNNING)


async def test_a_program_that_cannot_be_executed_is_reported(machine: Machine) -> None:
    async with machine.supervised(pod("etcd", "missing")) as supervisor:
        state = await until(supervisor, lambda state: state.phase is ComponentPhase.CRASH_LOOP)
    assert "/nonexistent/program cannot be started: No such file or directory" in state.reason


async def test_nothing_of_a_stopped_component_is_left_even_if_it_ignores_signals(machine: Machine) -> None:
    stubborn = script("trap '' TERM; sleep 1000 & sleep 1000 & echo up; while :; do sleep 0.05; done")
    async with machine.supervised(stubborn) as supervisor:
        await eventually(lambda: "up" in supervisor.last_lines("etcd"))
        session = state_of(supervisor).pid
        assert len(of_session(session)) >= 3
        await supervisor.stop(AT_ONCE)
        assert of_session(session) == []
        await supervisor.stop(AT_ONCE)
        assert [state.phase for state in supervisor.snapshot()] == [ComponentPhase.STOPPED]


async def test_children_of_a_component_that_died_are_killed(machine: Machine) -> None:
    async with machine.supervised(script("sleep 1000 & echo up; wait")) as supervisor:
        await eventually(lambda: "up" in supervisor.last_lines("etcd"))
        session = state_of(supervisor).pid
        await eventually(lambda: len(of_session(session)) == 2)
        os.kill(session, signal.SIGKILL)
        await eventually(lambda: of_session(session) == [])


async def test_stopping_proceeds_stage_by_stage(machine: Machine) -> None:
    note = machine.root / "order"

    def ending(name: str) -> dict:
        return script(f"trap 'sleep 0.1; echo {name} >> {note}; exit 0' TERM; echo up; while :; do sleep 0.01; done", name)

    names = ("etcd", "kube-apiserver", "kube-scheduler", "other")
    async with machine.supervised(*(ending(name) for name in names)) as supervisor:
        await ready(supervisor, *names)
        for name in names:
            await eventually(lambda name=name: supervisor.last_lines(name) == ["up"])
        await supervisor.stop(
            (StopStage(grace=HANGS), StopStage(pods=("kube-apiserver",), grace=HANGS), StopStage(pods=("etcd",), grace=HANGS))
        )
    written = note.read_text().split()
    assert sorted(written[:2]) == ["kube-scheduler", "other"]
    assert written[2:] == ["kube-apiserver", "etcd"]


async def test_a_pod_waits_for_the_pods_before_it(machine: Machine) -> None:
    gate = machine.root / "gate"
    first = script(f"while [ ! -e {gate} ]; do sleep 0.01; done; echo open; exec python3 -m http.server", "etcd")
    probe = {"readinessProbe": {"tcpSocket": {"port": 1}}}
    first["spec"]["containers"][0] |= probe
    async with machine.supervised(first, pod("kube-apiserver"), after={"kube-apiserver": ["etcd", "absent"]}) as supervisor:
        await until(supervisor, lambda state: state.pid is not None)
        await asyncio.sleep(0.1)
        assert state_of(supervisor, "kube-apiserver").pid is None
        machine.write(pod("etcd"))
        await ready(supervisor, "etcd", "kube-apiserver")


async def test_two_containers_of_a_pod_are_two_components(machine: Machine) -> None:
    manifest = pod("web")
    manifest["spec"]["containers"].append({"name": "side", "command": ["sh", "-c", "echo side; exec sleep 1000"]})
    async with machine.supervised(manifest) as supervisor:
        await ready(supervisor, "web")
        assert [state.name for state in supervisor.snapshot()] == ["web/side", "web/web"]
        await eventually(lambda: supervisor.last_lines("web/side") == ["side"])
        assert [line async for line in supervisor.read_log("web/side")] == [b"side\n"]


async def test_restarts_leak_no_descriptors(machine: Machine) -> None:
    async with machine.supervised(pod()) as supervisor:
        await ready(supervisor)
        before = descriptors()
        for number in range(5):
            pid = state_of(supervisor).pid
            if number % 2:
                machine.write(script(f"echo {number}; exec sleep 1000"))
            else:
                os.kill(pid, signal.SIGKILL)
            await until(supervisor, lambda state, pid=pid: is_ready(state) and state.pid != pid)
            supervisor._pod_workers["etcd"].workers[0].failures = 0
        assert descriptors() == before
    async with machine.supervised() as supervisor:
        pass
    assert descriptors() <= before


async def test_the_pods_that_should_run_are_listed(machine: Machine) -> None:
    async with machine.supervised(pod()) as supervisor:
        assert [one.name for one in supervisor.pods()] == ["etcd"]


def test_down_grants_three_seconds_in_all() -> None:
    assert 0 < sum(stage.grace for stage in DOWN) <= 3
