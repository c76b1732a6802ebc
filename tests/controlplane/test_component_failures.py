"""Every hint for a component is found in the output of the real program with that fault, as the diagnosis of a wait reads it."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from local_kit import program

from kubewright.lifecycle.diagnosis import observation, remedies
from loopback import free_address
from other_user import becoming, uid


def _run(argv: list[str], **how: Any) -> list[str]:
    """Run a program that must fail, and return its output: the lines of its log that a container runtime would have."""
    ended = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, check=False, **how)
    assert ended.returncode != 0
    return ended.stdout.decode(errors="replace").splitlines()[-observation.LOG_LINES :]


def _etcd(place: Path, **more: str) -> list[str]:
    address = free_address((2379, 2380))
    client, peer = f"http://{address}:2379", f"http://{address}:2380"
    given = {
        "data-dir": f"{place}/data",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        **more,
    }
    return [program("etcd"), *(f"--{name}={value}" for name, value in given.items())]


def _over(mount: str, place: Path) -> list[str]:
    """Run etcd with its directory on a separate file system."""
    if os.geteuid() != 0:
        pytest.skip("a file system of one's own needs root")
    script = f'mount -t tmpfs -o {mount} none {place}; exec "$@"'
    return _run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "etcd", *_etcd(place)])


def _taken(place: Path) -> list[str]:
    with socket.create_server((free_address((2379,)), 0)) as server:
        address, port = server.getsockname()
        return _run(_etcd(place, **{"listen-client-urls": f"http://{address}:{port}"}))


def _forbidden(place: Path) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="kw-readable-") as readable:
        Path(readable).chmod(0o755)
        copy = Path(readable) / "etcd"
        copy.write_bytes(Path(program("etcd")).read_bytes())  # only its owner may be able to read the cache
        copy.chmod(0o755)
        sealed = Path(readable) / "sealed"
        sealed.mkdir(mode=0o700 if os.geteuid() == 0 else 0)
        return _run([str(copy), *_etcd(sealed)[1:]], **becoming(uid()))


FAILING: Mapping[str, Callable[[Path], list[str]]] = {
    "no space left on device": lambda place: _over("size=64k", place),
    "read-only file system": lambda place: _over("ro", place),
    "address already in use": _taken,
    "unknown flag": lambda _: _run([program("kube-apiserver"), "--nonsense"]),
    "flag provided but not defined": lambda _: _run([program("etcd"), "--nonsense"]),
    "invalid argument": lambda _: _run([program("kube-scheduler"), "--leader-elect=maybe"]),
    "invalid value": lambda place: _run(_etcd(place, **{"heartbeat-interval": "x"})),
    "permission denied": _forbidden,
}
"""What makes a component write the text of a row."""


def test_every_row_is_tested_with_a_failure() -> None:
    assert FAILING.keys() == dict(remedies.COMPONENT).keys()


@pytest.mark.parametrize("text", FAILING)
def test_every_known_component_error_has_a_hint(text: str, tmp_path: Path) -> None:
    said = observation.errors(FAILING[text](tmp_path))[-observation.ERROR_LINES :]
    assert remedies.of_component(said) == dict(remedies.COMPONENT)[text], said


def test_a_failure_without_a_row_has_the_general_hint() -> None:
    said = observation.errors(_run([program("kube-scheduler"), "--kubeconfig=/none"]))[-observation.ERROR_LINES :]
    assert "/none" in "".join(said)
    assert remedies.of_component(said) == remedies.COMPONENT_OTHERWISE
