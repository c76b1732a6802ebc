"""Builds with a fake Go: its calls, its failures, messages, and leftovers when everything is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import binaries_programs as programs
import pytest
from binaries_go import FakeGo, stamps_of
from hypothesis import given
from hypothesis import strategies as st

from busy import HANGS
from kubewright import binaries
from kubewright.base.clock import FakeClock
from kubewright.base.errors import BinariesError, DiskFull, HostError, KubewrightError, Locked
from kubewright.base.events import Line, Progress, RecordingReporter, Waiting
from kubewright.binaries import BinarySources, golang
from kubewright.binaries.build import failure
from kubewright.binaries.files import cache_lock


@pytest.fixture(autouse=True)
def no_other_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golang, "INSTALLED", "/nonexistent/go")


@pytest.fixture
def go(tmp_path: Path) -> FakeGo:
    return FakeGo.make(tmp_path / "go")


def sources(tmp_path: Path, **changes: object) -> BinarySources:
    return BinarySources(**{"cache": tmp_path / "cache", "allow_download": False, **changes})  # type: ignore[arg-type]


def ensure(go: FakeGo, tmp_path: Path, *names: str, version: str = "v1.36.3", **options: object) -> dict[str, binaries.Binary]:
    chosen = options.pop("sources", sources(tmp_path))
    environment = {**go.environment, **options.pop("environment", {})}  # type: ignore[dict-item]
    return binaries.ensure(names or ("kubectl",), version=version, sources=chosen, environment=environment, **options)  # type: ignore[arg-type]


def refusal(go: FakeGo, tmp_path: Path, *names: str, **options: object) -> BinariesError:
    with pytest.raises(BinariesError) as caught:
        ensure(go, tmp_path, *names, **options)
    assert not list((tmp_path / "cache").glob("v*/*/*"))
    assert not list((tmp_path / "cache").glob("work-*"))
    return caught.value


def test_all_programs_of_a_family_are_built_together(go, tmp_path):
    reporter = RecordingReporter()
    found = ensure(go, tmp_path, *binaries.DEFAULT, reporter=reporter)
    assert [binary.path.read_bytes() for binary in found.values()] == [programs.program(name) for name in binaries.DEFAULT]
    assert {binary.source for binary in found.values()} == {"build etcd-3.6 with go1.26.8", "build kubernetes-1.36 with go1.26.8"}
    commands = "k8s.io/kubernetes/cmd"
    assert [[word for word in build if "/" in word and not word.startswith(("-", "/"))] for build in go.builds()] == [
        ["go.etcd.io/etcd/server/v3"],
        [f"{commands}/kube-apiserver", f"{commands}/kube-controller-manager", f"{commands}/kube-scheduler", f"{commands}/kubectl"],
    ]
    told = {event.task for event in reporter.events if isinstance(event, Progress)}
    assert told == {
        "prepare etcd v3.6.8",
        "build etcd v3.6.8",
        "prepare kube-apiserver, kube-controller-manager, kube-scheduler, kubectl v1.36.3",
        "build kube-apiserver, kube-controller-manager, kube-scheduler, kubectl v1.36.3",
    }
    assert [event.total for event in reporter.events if isinstance(event, Progress) and event.task.startswith("build kube")][-1] == 4
    assert "built etcd v3.6.8 linux/" + programs.NATIVE in [event.text for event in reporter.events if isinstance(event, Line)]


def test_a_second_call_builds_nothing(go, tmp_path):
    first = ensure(go, tmp_path)
    count = len(go.calls())
    assert ensure(go, tmp_path) == first
    assert len(go.calls()) == count == 3


def test_only_missing_programs_are_built(go, tmp_path):
    ensure(go, tmp_path, "kubectl")
    ensure(go, tmp_path, "kubectl", "kube-scheduler")
    assert [build[-1] for build in go.builds()] == ["k8s.io/kubernetes/cmd/kubectl", "k8s.io/kubernetes/cmd/kube-scheduler"]


def test_settings_of_the_user_do_not_change_the_built_program(go, tmp_path):
    own = {
        "GOFLAGS": "-race", "GOOS": "windows", "GOARCH": "mips", "GOEXPERIMENT": "x", "GOWORK": "/w", "GOAMD64": "v4", "CGO_CFLAGS": "-O0",
        "GOTOOLCHAIN": "auto", "GOPROXY": "https://proxy.example", "GOCACHE": "/c", "GOMODCACHE": "/m", "HTTPS_PROXY": "http://p",
    }  # fmt: skip
    ensure(go, tmp_path, environment=own)
    arguments, environment = go.calls()[-1]
    assert arguments[:4] == ["build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in arguments[4]
    kept = {"GOPROXY": "https://proxy.example", "GOCACHE": "/c", "GOMODCACHE": "/m", "HTTPS_PROXY": "http://p"}
    ours = {
        "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GO111MODULE": "on", "GOWORK": "off", "GOOS": "linux", "GOARCH": programs.NATIVE,
        "GOAMD64": "v1", "GOARM64": "v8.0", "CGO_ENABLED": "0",
    }  # fmt: skip
    assert {name: value for name, value in environment.items() if name.startswith(("GO", "CGO", "HTTPS")) and name != "GOTMPDIR"} == {
        **kept,
        **ours,
    }
    assert environment["GOTMPDIR"].startswith(str(tmp_path / "cache" / "work-"))
    assert environment["cwd"].startswith(str(tmp_path / "cache" / "work-"))
    assert environment["cwd"].endswith("/modules/kubernetes-1.36")


def test_offline_a_build_may_not_fetch_modules(go, tmp_path):
    ensure(go, tmp_path, sources=sources(tmp_path, offline=True), environment={"GOPROXY": "https://proxy.example"})
    assert go.calls()[-1][1]["GOPROXY"] == "off"


def test_runc_is_built_with_c_and_its_tag(go, tmp_path):
    programs.put(go.root / "programs", "runc", programs.program("runc"))
    ensure(go, tmp_path, "runc")
    arguments, environment = go.calls()[-1]
    assert "-tags=seccomp" in arguments
    assert environment["CGO_ENABLED"] == "1"


@pytest.mark.parametrize(
    ("snippet", "words"),
    [
        ("version=go1.25.7", "is go1.25.7, go1.26 or later is needed"),
        ("version='devel +abc'", "does not report its version"),
        ("[ $verb = env ] && { echo broken >&2; exit 2; }", "failed with exit status 2"),
        ('[ $verb = list ] && { echo "go: k8s.io/kubernetes@v1.36.3: dial tcp: lookup proxy: no such host"; exit 1; }', "dial tcp"),
        ('[ $verb = build ] && { echo "# k8s.io/api"; echo "x.go:1:1: syntax error"; exit 1; }', "# k8s.io/api\nx.go:1:1: syntax error"),
        ("[ $verb = build ] && kill -9 $$", "was killed by signal 9"),
        ("[ $verb = build ] && exit 0", "cannot be written|cannot be read"),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_nothing(go, tmp_path, snippet, words):
    go.behave(snippet)
    with pytest.raises(KubewrightError) as caught:
        ensure(go, tmp_path)
    assert any(word in str(caught.value).replace("\n    ", "\n") for word in words.split("|"))
    assert caught.value.remedy
    assert not list((tmp_path / "cache").glob("v*/*/*"))
    assert not list((tmp_path / "cache").glob("work-*"))


def test_without_go_the_error_lists_every_source_and_what_to_do(tmp_path):
    with pytest.raises(BinariesError) as caught:
        binaries.ensure(version="v1.36.3", sources=sources(tmp_path), environment={"PATH": str(tmp_path)})
    error = caught.value
    assert all(f"{name} v" in error.what for name in binaries.DEFAULT)
    assert error.detail.splitlines() == [
        f"cache: not in {tmp_path}/cache/v1.36.3/{programs.NATIVE}",
        "download: not allowed",
        "build: go is not on PATH",
    ]
    assert "install Go 1.26 or later" in error.remedy
    assert "(KUBEWRIGHT_BINARIES_DIR)" in error.remedy
    assert "KUBEWRIGHT_OFFLINE=0" in error.remedy


def test_a_version_without_a_module_is_reported(go, tmp_path):
    error = refusal(go, tmp_path, version="v1.36.1")
    assert "only these versions of kubernetes can be built: v1.35.4, v1.36.3, v1.37.1" in error.detail


def test_a_program_that_prints_another_version_is_not_installed(go, tmp_path):
    programs.put(go.root / "programs", "kubectl", programs.elf_program("Client Version: v0.0.0-master+$Format:%H$"))
    assert "exactly v1.36.3 is wanted" in refusal(go, tmp_path).detail


def test_a_program_for_another_machine_is_not_installed(go, tmp_path):
    programs.put(go.root / "programs", "kubectl", programs.program("kubectl", architecture=programs.FOREIGN))
    assert f"{programs.NATIVE} is needed" in refusal(go, tmp_path).detail


def test_a_build_for_another_machine_is_not_run(go, tmp_path):
    programs.put(go.root / "programs", "kubectl", programs.program("kubectl", architecture=programs.FOREIGN))
    found = ensure(go, tmp_path, architecture=programs.FOREIGN)
    assert found["kubectl"].path.parent.name == programs.FOREIGN
    assert go.calls()[-1][1]["GOARCH"] == programs.FOREIGN


def test_one_failing_family_does_not_affect_the_other(go, tmp_path):
    go.behave('case "$verb$packages" in build*kubectl*) echo "boom here"; exit 1;; esac')
    with pytest.raises(BinariesError) as caught:
        ensure(go, tmp_path, "etcd", "kubectl")
    assert "boom here" in caught.value.detail
    assert "etcd" not in caught.value.what
    assert list(stamps_of(tmp_path / "cache" / "v1.36.3" / programs.NATIVE)) == ["etcd"]


def test_a_full_disk_is_reported_as_one(go, tmp_path):
    go.behave('[ $verb = build ] && { echo "write /tmp/x: no space left on device"; exit 1; }')
    with pytest.raises(DiskFull, match="there is not enough space to build kubectl") as caught:
        ensure(go, tmp_path)
    assert "GOCACHE" in caught.value.remedy
    assert not list((tmp_path / "cache").glob("work-*"))


@pytest.mark.parametrize("below", ["/proc", "/proc/self/status"])
def test_an_unwritable_cache_is_reported(go, tmp_path, below):
    with pytest.raises(HostError, match="cannot be written") as caught:
        ensure(go, tmp_path, sources=sources(tmp_path, cache=Path(below) / "kubewright"))
    assert "KUBEWRIGHT_CACHE_DIR" in caught.value.remedy


def test_a_cache_that_is_a_file_is_reported(go, tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(HostError, match="cache/lock: Not a directory") as caught:
        ensure(go, tmp_path)
    assert "KUBEWRIGHT_CACHE_DIR" in caught.value.remedy


def test_a_silent_build_still_reports_progress(go, tmp_path, monkeypatch):
    from kubewright.binaries import build as child

    monkeypatch.setattr(child, "TICK", 0.05)
    go.behave('[ $verb = build ] && until [ -e "$here/../told" ]; do sleep 0.05; done')

    class Watching(RecordingReporter):
        def emit(self, event):
            super().emit(event)
            if len([one for one in self.events if isinstance(one, Progress) and one.task.startswith("build")]) == 2:
                (go.root / "told").touch()

    ensure(go, tmp_path, reporter=Watching())
    assert (go.root / "told").exists()


def test_a_hanging_build_is_killed(go, tmp_path, monkeypatch):
    from kubewright.binaries import build as child

    monkeypatch.setattr(child, "TICK", 0.05)
    go.behave('[ $verb = build ] && { echo $$ > "$here/../pid"; exec sleep 1000; }')
    for seconds in (1, 10, HANGS):  # on a busy machine a short time is over before the build has begun
        monkeypatch.setattr(child, "LONGEST_SILENCE", seconds)
        assert "said nothing for" in refusal(go, tmp_path).detail
        if (go.root / "pid").exists():
            break
    assert not Path(f"/proc/{(go.root / 'pid').read_text().strip()}").exists()


# One at a time


def test_another_run_is_reported_and_waited_for(go, tmp_path):
    reporter, clock = RecordingReporter(), FakeClock()
    (tmp_path / "cache").mkdir()
    descriptor = os.open(tmp_path / "cache" / "lock", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"held by pid 77: fetching etcd")
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    sleep, naps = clock.sleep, []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        sleep(seconds)
        if len(naps) == 20:
            os.close(descriptor)

    clock.sleep = nap  # type: ignore[method-assign]
    found = ensure(go, tmp_path, reporter=reporter, clock=clock)
    assert found["kubectl"].path.exists()
    waits = [event for event in reporter.events if isinstance(event, Waiting)]
    assert len(waits) >= 3
    assert {event.reason for event in waits} == {"held by pid 77: fetching etcd"}


def test_a_run_that_does_not_wait_names_the_other_run(go, tmp_path):
    with (
        cache_lock(tmp_path / "cache", task="fetching etcd", wait=True, clock=FakeClock(), reporter=RecordingReporter()),
        pytest.raises(Locked, match=rf"held by pid {os.getpid()} since .*: fetching etcd"),
    ):
        ensure(go, tmp_path, wait=False)
    assert len(ensure(go, tmp_path, wait=False)) == 1


def test_existing_programs_need_no_waiting(go, tmp_path):
    ensure(go, tmp_path)
    with cache_lock(tmp_path / "cache", task="x", wait=True, clock=FakeClock(), reporter=RecordingReporter()):
        assert len(ensure(go, tmp_path, wait=False)) == 1


def test_programs_built_by_another_run_are_not_built_again(go, tmp_path):
    go.behave("[ $verb = build ] && sleep 0.2")
    threads = [threading.Thread(target=ensure, args=(go, tmp_path, "kubectl")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(go.builds()) == 1


# Killed

RUN = """
import os, sys
from kubewright import binaries
binaries.ensure(("kubectl",), version="v1.36.3", sources=binaries.BinarySources(cache=__import__("pathlib").Path(sys.argv[1]), allow_download=False))
"""


def start(go: FakeGo, cache: Path) -> subprocess.Popen[bytes]:
    environment = {**go.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", RUN, str(cache)], env=environment, stderr=subprocess.PIPE)


def wait_for(path: Path) -> None:
    end = time.monotonic() + HANGS
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)


@pytest.mark.parametrize("at", ["list", "build"])
def test_a_killed_run_leaves_nothing_half_written_and_the_next_one_finishes(go, tmp_path, at):
    go.behave(
        f'[ $verb = {at} ] && {{ echo half > "${{out}}kubectl"; echo $$ > "$here/../new"; mv "$here/../new" "$here/../pid"; exec sleep 600; }}'
    )
    process = start(go, tmp_path / "cache")
    wait_for(go.root / "pid")
    process.kill()
    os.kill(int((go.root / "pid").read_text()), signal.SIGKILL)  # the real Go exits by itself: its pipe is broken
    process.communicate()
    assert list((tmp_path / "cache").glob("work-*"))
    go.behave("")
    assert ensure(go, tmp_path)["kubectl"].path.read_bytes() == programs.program("kubectl")
    assert not list((tmp_path / "cache").glob("work-*"))
    assert len(go.builds()) == (1 if at == "list" else 2)


def test_a_run_that_ends_between_the_program_and_its_stamp_is_repeated(go, tmp_path, monkeypatch):
    from kubewright.binaries import cache as stamps

    save = stamps.save_records
    monkeypatch.setattr(stamps, "save_records", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        ensure(go, tmp_path)
    monkeypatch.setattr(stamps, "save_records", save)
    assert binaries.locate(("kubectl",), version="v1.36.3", sources=sources(tmp_path)).missing
    assert ensure(go, tmp_path)["kubectl"].version == "v1.36.3"
    assert len(go.builds()) == 2


def test_an_interrupt_ends_the_build_and_its_children(go, tmp_path):
    go.behave('[ $verb = build ] && { sleep 600 & echo $! > "$here/../child.new"; mv "$here/../child.new" "$here/../child"; wait; }')
    process = start(go, tmp_path / "cache")
    wait_for(go.root / "child")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=HANGS)
    child = Path("/proc") / (go.root / "child").read_text().strip() / "stat"
    end = time.monotonic() + HANGS
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, "the compiler still runs"
        time.sleep(0.01)
    assert not list((tmp_path / "cache").glob("work-*"))


# Last output

LINES = st.lists(
    st.text(max_size=30) | st.sampled_from(["k8s.io/api/core/v1", "go: downloading x v1", "# x", "signal: killed", "x: dial tcp 1.2.3.4"])
)


@given(LINES, st.integers(min_value=-64, max_value=255).filter(bool))
def test_any_output_gives_an_error_of_the_tree(lines, code):
    error = failure("kubectl v1.36.3", code, lines)
    assert "kubectl v1.36.3" in error.what
    assert len(error.detail.splitlines()) <= 12 * 31
    assert "go: downloading x v1" not in error.detail.splitlines()


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("x: signal: killed", "memory"),
        ("dial tcp: i/o timeout", "GOPROXY"),
        ("module lookup disabled by GOPROXY=off", "GOPROXY"),
        ("verifying x: checksum mismatch", "use another one"),
        ("exec: pkg-config: not found in PATH", "libseccomp-dev"),
    ],
)
def test_errors_of_go_lead_to_a_hint(line, remedy):
    assert remedy in failure("runc", 1, ["# x", line]).remedy


def test_go_in_its_usual_place_is_found_without_path(go, tmp_path, monkeypatch):
    monkeypatch.setattr(golang, "INSTALLED", str(go.root / "bin" / "go"))
    assert golang.find_go({"PATH": "/nowhere"}, need=(1, 26, 0)).path == str(go.root / "bin" / "go")
