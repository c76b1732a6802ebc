"""Signals that end a command: each acts like Ctrl-C, with its own exit code. Real signals, sent to real processes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import kubewright

STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
GUARD = 600.0
"""Seconds; a guard against hangs, not a measurement."""
INSTALLED = """
import sys, threading, time
from kubewright.cli.main import Stops
Stops().install()
def say(text): print(text, flush=True)
"""
DRY_RUN = """
import os, sys, time
from contextlib import suppress
from pathlib import Path, PurePosixPath
from kubewright.apis.machine import Layout
from kubewright.cli.handlers import machine
from kubewright.cli.main import run
from kubewright.host import overlay
from kubewright.host.real import RealHost
layout = Layout.below(PurePosixPath(sys.argv[1]))
begun, unread, full = (Path(sys.argv[1] + name) for name in (".begun", ".unread", ".full"))
def fills_its_output(*given, real=overlay.materialise, **named):
    begun.mkdir()
    while not unread.exists():
        time.sleep(0.01)
    written = real(*given, **named)
    own = os.open("/proc/self/fd/1", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while os.write(own, b"." * 4096):
            pass
    os.close(own)
    full.mkdir()
    return written
overlay.materialise = fills_its_output
machine.host = lambda _, **__: RealHost(layout=layout, environment={})
sys.argv = ["kubewright", "init", "--dry-run", "--config", sys.argv[2], "--skip-phases", "preflight"]
run()
"""
CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.98.0.11}
nodeRegistration: {name: one, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
encryptionAlgorithm: ECDSA-P256
"""


def environment(tmp_path):
    source = str(Path(kubewright.__file__).parents[1])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": source, "XDG_STATE_HOME": str(tmp_path / "state"), "LANG": "C.UTF-8"}


def line(process):
    """Read one line and not a byte more, because `communicate` does not know the contents of a buffer."""
    found = b""
    while not found.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        found += byte
    return found.decode()


def eventually(condition):
    end = time.monotonic() + GUARD
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


@pytest.fixture
def program(tmp_path):
    """Start a program that has the handlers, and wait until it reports that it is ready."""
    started = []

    def start(text, *, ignoring=()):
        words = [sys.executable, "-c", INSTALLED + text]
        for number in ignoring:  # as nohup does
            words = ["sh", "-c", f"trap '' {number.name.removeprefix('SIG')}; exec \"$@\"", "sh", *words]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path))
        started.append(process)
        assert line(process) == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


CLEANS_UP = """
try:
    say("ready")
    time.sleep(60)
except KeyboardInterrupt as stop:
    say(f"stopped by {getattr(stop, 'number', 0)}")
    time.sleep(0.3)
    say("cleaned up")
"""


@pytest.mark.parametrize("number", STOPPING)
def test_each_signal_raises_an_exception_like_ctrl_c(program, number):
    process = program(CLEANS_UP)
    process.send_signal(number)
    out, err = process.communicate(timeout=GUARD)
    assert (process.returncode, out, err) == (0, f"stopped by {int(number)}\ncleaned up\n", "")


def test_further_signals_do_not_interrupt_the_clean_up(program):
    process = program(CLEANS_UP)
    process.send_signal(signal.SIGHUP)
    assert line(process) == "stopped by 1\n"
    for number in (*STOPPING, *STOPPING):
        process.send_signal(number)
    out, err = process.communicate(timeout=GUARD)
    assert (process.returncode, out, err) == (0, "cleaned up\n", "")


def test_a_signal_lost_in_a_destructor_is_replaced_by_the_next(program):
    process = program(
        """
class Slow:
    def __del__(self):
        say("ready")
        time.sleep(60)
        say("slept on")
try:
    Slow()
    say("went on")
    time.sleep(60)
except KeyboardInterrupt as stop:
    say(f"stopped by {stop.number}")
"""
    )
    process.send_signal(signal.SIGTERM)
    assert line(process) == "went on\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=GUARD)[0] == "stopped by 15\n"


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_ignored_from_the_start_stays_ignored(program, number):
    process = program("say('ready'); time.sleep(0.4); say('went on')", ignoring=[number])
    process.send_signal(number)
    assert process.communicate(timeout=GUARD)[0] == "went on\n"
    assert process.returncode == 0


def test_children_have_default_signal_handling(program):
    process = program("import subprocess; say('ready'); say(subprocess.run(['sh', '-c', 'kill -TERM $$; echo alive']).returncode)")
    assert process.communicate(timeout=GUARD)[0] == "-15\n"


def test_a_main_thread_that_waits_for_others_is_interrupted(program):
    process = program(
        """
others = threading.Thread(target=time.sleep, args=(600,), daemon=True)
others.start()
try:
    say("ready")
    others.join()
except KeyboardInterrupt:
    say("stopped")
"""
    )
    process.send_signal(signal.SIGTERM)
    try:
        said, _ = process.communicate(timeout=GUARD / 30)
    except subprocess.TimeoutExpired:
        # It arrived between CPython's last check for signals and the wait; users press Ctrl-C again.
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=GUARD)
    assert said == "stopped\n"


class DryRun:
    """A real dry run with its keys on disk, stopped where it reports them: its output is full and not read."""

    def __init__(self, tmp_path, *, terminal=False) -> None:
        (tmp_path / "init.yaml").write_text(CONFIG)
        self.root = tmp_path / "root"
        self.reader, writer = pty.openpty() if terminal else os.pipe()
        words = [sys.executable, "-c", DRY_RUN, str(self.root), str(tmp_path / "init.yaml")]
        session = ["setsid", "--ctty"] if terminal else []
        self.process = subprocess.Popen([*session, *words], stdin=writer, stdout=writer, stderr=subprocess.PIPE, env=environment(tmp_path))
        self.writer = writer
        os.set_blocking(self.reader, False)
        eventually(self._has_begun_to_write)
        self._marker("unread").mkdir()
        eventually(self._marker("full").exists)

    def _marker(self, name):
        return self.root.with_suffix(f".{name}")

    def _has_begun_to_write(self):
        if self._marker("begun").exists():
            return True
        assert self.process.poll() is None
        self._read()
        return False

    def _read(self):
        with suppress(BlockingIOError):
            os.read(self.reader, 1 << 16)

    def files(self):
        return sorted(path for path in self.root.parent.rglob("*") if path.is_file() and path.name != "init.yaml")

    def end(self):
        """Read the remaining output, if it is read at all, and return the exit code and the errors."""
        os.close(self.writer)
        while self.process.poll() is None and self.reader is not None:
            self._read()
            time.sleep(0.01)
        said = self.process.communicate(timeout=GUARD)[1].decode()
        if self.reader is not None:
            os.close(self.reader)
        return self.process.returncode, said

    def hang_up(self):
        os.close(self.reader)
        self.reader = None


@pytest.mark.parametrize("numbers", [*((number,) for number in STOPPING), (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM)])
def test_a_dry_run_leaves_no_key_behind(tmp_path, numbers):
    run = DryRun(tmp_path)
    assert len([path for path in run.files() if path.suffix == ".key"]) >= 1
    for number in numbers:
        run.process.send_signal(number)
    code, said = run.end()
    assert code in {128 + number for number in numbers}  # of several pending signals, the kernel delivers the lowest first
    assert said.startswith("error: interrupted")
    assert "Traceback" not in said
    assert run.files() == []


def test_a_dry_run_whose_terminal_is_closed_leaves_no_key_behind(tmp_path):
    run = DryRun(tmp_path, terminal=True)
    run.hang_up()
    code, said = run.end()
    assert code == 128 + signal.SIGHUP
    assert "Traceback" not in said
    assert run.files() == []
