"""The reference data, which kubeadm v1.36.2 wrote, compared with what kubeadm v1.36.3 writes for the same configurations.

Two cases were compared by hand: external-ca, whose phases require all certificates, and rootless, which adds users to
the machine. docs/compat/kubeadm.md has the results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from arena import Request, Worker, _worker
from oracles import kubeadm_of

from kubewright.base.versions import OWN

CASES = Path(__file__).parents[1] / "data" / "reference" / "cases"
NAMES = sorted(path.name for path in CASES.iterdir() if path.name not in {"external-ca", "rootless"})
CONFIG = "--config=/srv/kubeadm.yaml"
PROXIES = {
    "FOO_proxy": "x",
    "HTTPS_PROXY": "http://proxy.example.com:3128",
    "HTTP_PROXY": "http://proxy.example.com:3128",
    "no_proxy": "10.0.0.0/8,.svc",
}
ELSEWHERE = {"proxy-env"}
"""Cases from a machine with another name than node1, whose kubelet therefore gets its name as a flag."""


@pytest.fixture(scope="module")
def machine() -> Iterator[Worker]:
    with _worker(kubeadm_of(OWN.line)) as worker:
        yield worker


@pytest.mark.parametrize("case", NAMES)
def test_kubeadm_writes_the_reference_data(machine, case):
    place = CASES / case
    files = {f"/etc/kubernetes/patches/{path.name}": path.read_text() for path in sorted(place.glob("patches/*"))}
    phases = ["control-plane all", "kubelet-start", *([] if case == "external-etcd" else ["etcd local"])]
    commands = [
        *(["init", "phase", *phase.split(), CONFIG] for phase in phases),
        ["config", "images", "list", CONFIG],
        ["config", "migrate", "--old-config=/srv/kubeadm.yaml"],
    ]
    files["/srv/kubeadm.yaml"] = (place / "kubeadm.yaml").read_text()
    machine.send(Request(commands, files, PROXIES if case == "proxy-env" else {}))
    found = machine.receive()
    assert [run.code for run in found.runs] == [0] * len(commands)
    manifests = {path.name: path.read_bytes() for path in (place / "manifests").iterdir()}
    assert {name: found.files[f"/etc/kubernetes/manifests/{name}"].content for name in manifests} == manifests
    kubelet = {path.name: path.read_bytes() for path in (place / "kubelet").iterdir()}
    if case in ELSEWHERE:
        kubelet["kubeadm-flags.env"] = kubelet["kubeadm-flags.env"].replace(b"--hostname-override=node1", b"")
    assert {name: found.files[f"/var/lib/kubelet/{name}"].content for name in kubelet} == kubelet
    assert found.runs[-2].out == (place / "images.txt").read_text()
    assert without_tokens(found.runs[-1].out) == without_tokens((place / "config-migrate.yaml").read_text())


def without_tokens(text: str) -> str:
    """Leave out random tokens."""
    return re.sub(r"token: (?!abcdef\.)\S+", "token: ?", text)
