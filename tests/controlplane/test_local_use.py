"""kubectl with the kubeconfig that `local use` changed, and a first `up` that provides kubectl itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from local_kit import COMPONENTS, Bench, bench, eventually, program

from kubewright.host.locks import Lock

THEIRS = """\
apiVersion: v1
kind: Config
clusters: [{name: work, cluster: {server: "https://work.invalid"}}]
contexts: [{name: work, context: {cluster: work, user: me}}]
current-context: work
users: [{name: me, user: {token: abc}}]
"""


@pytest.fixture
def home() -> Iterator[Bench]:
    yield from bench()


def test_kubectl_uses_the_kubeconfig_of_local_use_and_down_restores_it(home: Bench, tmp_path: Path) -> None:
    config, own = tmp_path / "config", tmp_path / "bin"
    config.write_text(THEIRS)
    own.mkdir()
    for name in (*COMPONENTS, "kubectl"):
        shutil.copy(program(name), own / name)

    def kubectl(*words: str) -> tuple[int, str]:
        done = subprocess.run([own / "kubectl", "--kubeconfig", config, *words], capture_output=True, text=True, check=False, timeout=900)
        return done.returncode, done.stdout + done.stderr

    ran = home.run("up", "--nodes", "0", "--binaries-dir", str(own))
    assert (ran.code, "kubectl" in ran.err) == (0, False), ran.err
    assert f"export PATH={own}:" in home.run("local", "env").out

    ran = home.run("local", "use", KUBECONFIG=str(config))
    assert (ran.code, ran.out) == (0, f"kubewright-one is now the current context of {config}\n"), ran.err
    assert kubectl("get", "nodes", "-o", "name") == (0, "node/one-control-plane\n")
    assert kubectl("config", "get-contexts", "-o", "name") == (0, "kubewright-one\nwork\n")

    assert kubectl("config", "set-context", "--current", "--namespace", "kube-system")[0] == 0
    found = home.run("local", "use", "one", "-o", "json", KUBECONFIG=str(config)).json
    assert (found["changed"], found["context"], found["kubeconfig"]) == (False, "kubewright-one", str(config))
    eventually(
        lambda: "kube-apiserver-one-control-plane" in kubectl("get", "pods", "-o", "name")[1], "the mirror pod, which comes after the Node"
    )

    lock = Lock(PurePosixPath(f"{config}.lock"), doing="a test")
    lock.acquire()
    code, said = kubectl("config", "use-context", "work")
    assert (code, "file exists" in said) == (1, True), said  # kubectl respects ours, as we respect kubectl's
    lock.release(remove=True)
    assert kubectl("config", "rename-context", "kubewright-one", "mine")[0] == 0

    ran = home.run("down")
    assert (ran.code, f"its context was removed from {config}" in ran.out) == (0, True), ran.err
    assert kubectl("config", "get-contexts", "-o", "name") == (0, "work\n")
    assert kubectl("config", "get-clusters") == (0, "NAME\nwork\n")
    assert kubectl("config", "current-context")[0] == 1
