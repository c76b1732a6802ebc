"""The checks of a machine: on equal machines, both tools report errors and warnings of the same checks, and ignore the same.

The machines of an arena have no container runtime, no kubelet and no service manager. Whole machines are in `tests/machines`.
A control plane that joins with all checks ignored is not compared: kubewright then asks the members of etcd.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import pytest
from arena import Answer, Arena, Request, arena
from certs_comparison import find_kubeadm
from test_phases_one_by_one import CLUSTER, CONFIG, INIT, PLACE, PLANE, WORKER, cluster, joining

EXTERNAL = """\
etcd: {external: {endpoints: ["https://10.98.0.12:2379"], caFile: /srv/etcd/ca.crt, certFile: /srv/etcd/client.crt, keyFile: /srv/etcd/client.key}}
"""
DUAL = CLUSTER.replace("podSubnet: 10.244.0.0/16", "podSubnet: '10.244.0.0/16,fd00:10:244::/56'").replace(
    "serviceSubnet: 10.96.0.0/12", "serviceSubnet: '10.96.0.0/12,fd00:10:96::/112'"
)
MADE = ("manifests/kube-apiserver.yaml", "manifests/etcd.yaml", "kubelet.conf", "bootstrap-kubelet.conf")
PRESENT = {f"/etc/kubernetes/{name}": "" for name in MADE} | {"/var/lib/etcd/member/wal/0.wal": ""}
AUTHORITY = {"/etc/kubernetes/pki/ca.crt": ""}
PROXIES = {"HTTPS_PROXY": "http://192.0.2.9:3128", "HTTP_PROXY": "http://192.0.2.9:3128"}
INITS: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, str], Sequence[str]]] = {
    "an empty machine": (INIT, {}, {}, ()),
    "files of a cluster": (INIT, PRESENT, {}, ()),
    "proxies": (INIT, {}, PROXIES, ()),
    "proxies with exceptions": (INIT, {}, {**PROXIES, "NO_PROXY": "10.0.0.0/8"}, ()),
    "two families": (INIT.replace(CLUSTER, DUAL), {}, PROXIES, ()),
    "external etcd": (INIT.replace(CLUSTER, CLUSTER + EXTERNAL), {}, {}, ()),
    "all ignored": (INIT, PRESENT, {}, ("--ignore-preflight-errors=all",)),
    "some ignored": (INIT, {}, {}, ("--ignore-preflight-errors=CRI,kubeletversion,DirAvailable--var-lib-etcd",)),
    "some ignored in the file too": (
        INIT.replace("nodeRegistration:\n", "nodeRegistration:\n  ignorePreflightErrors: [CRI, ContainerRuntimeVersion]\n"),
        {},
        {},
        ("--ignore-preflight-errors=KubeletVersion,ImagePull",),
    ),
}


@pytest.fixture(scope="module")
def machines() -> Iterator[Arena]:
    with arena(find_kubeadm()) as both:
        yield both


LEFT_OUT = frozenset({"ContainerRuntimeVersion", "Firewalld", "SystemVerification"})
"""kubeadm reports that there is no runtime, no service manager and no kubelet for these, too."""


def told(answer: Answer) -> tuple[int, list[str]]:
    """The exit code, and each check with the severity of what it found."""
    found = set(re.findall(r"\[(ERROR|WARNING) ([^\]]+)\]", answer.err + answer.out))
    return answer.code, sorted(f"{severity} {name}" for severity, name in found if name not in LEFT_OUT)


@pytest.mark.parametrize("name", INITS)
def test_init_reports_the_checks_that_kubeadm_reports(name: str, machines: Arena) -> None:
    text, files, environment, flags = INITS[name]
    theirs, ours = machines.both(Request([["init", "phase", "preflight", CONFIG, *flags]], {PLACE: text, **files}, environment))
    assert told(theirs)[1]
    assert told(ours) == told(theirs), f"{theirs.err}\n\n{ours.err}"


JOINS: Mapping[str, tuple[str, Mapping[str, str], Sequence[str]]] = {
    "a worker": (WORKER, {}, ()),
    "a worker, with files of a cluster": (WORKER, PRESENT | AUTHORITY, ()),
    "a worker, all ignored": (WORKER, PRESENT, ("--ignore-preflight-errors=all",)),
    "a control plane": (WORKER + PLANE, {}, ()),
}


@pytest.mark.parametrize("name", JOINS)
def test_join_reports_the_checks_that_kubeadm_reports(name: str, machines: Arena) -> None:
    text, files, flags = JOINS[name]
    request = Request([["join", "phase", "preflight", CONFIG, *flags]], {**joining(text), **files}, cluster=cluster()[0])
    theirs, ours = machines.both(request)
    assert told(theirs)[1]
    assert told(ours) == told(theirs), f"{theirs.err}\n\n{ours.err}"
