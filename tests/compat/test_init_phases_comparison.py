"""Every leaf of `init phase` that needs no cluster, compared with real kubeadm: exit code, what lines name, files with modes, owners and bytes."""

from __future__ import annotations

import os

import pytest
from certs_comparison import DEFAULT, INIT, find_kubeadm
from leaves_comparison import Machine

from kubewright.base import yaml

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root directory")
CONFIG = ("--config", "/kubeadm.yaml")

CERTIFICATES = [
    "ca",
    "apiserver",
    "apiserver-kubelet-client",
    "front-proxy-ca",
    "front-proxy-client",
    "etcd-ca",
    "etcd-server",
    "etcd-peer",
    "etcd-healthcheck-client",
    "apiserver-etcd-client",
    "sa",
]
KUBECONFIGS = ["admin", "super-admin", "kubelet", "controller-manager", "scheduler"]
LEAVES = (
    *(("certs", name) for name in CERTIFICATES),
    *(("kubeconfig", name) for name in KUBECONFIGS),
    ("etcd", "local"),
    *(("control-plane", name) for name in ("apiserver", "controller-manager", "scheduler")),
    ("kubelet-start",),
)
ALL = (("certs", "all"), ("kubeconfig", "all"), ("etcd", "local"), ("control-plane", "all"), ("kubelet-start",))
BYTES = ("etc/kubernetes/manifests/", "var/lib/kubelet/")


@pytest.fixture(scope="module", autouse=True)
def _kubeadm():
    find_kubeadm()


def machines(place, *, cluster="", files=None, environment=None):
    config = {"kubeadm.yaml": INIT + DEFAULT + cluster, **(files or {})}
    return tuple(Machine.make(place / name, config, environment or {}) for name in ("ours", "theirs"))


def lines_of(done):
    """Lines about the service, and that instance-config.yaml is a patch, name nothing that users look for."""
    return [line for line in done.lines if line[0] != "patches" and (line[0] != "kubelet-start" or line[1])]


def require_same(ours, theirs, *argv: str, lines=True):
    """Run a command on both machines, and require the same result."""
    mine, other = ours.kubewright("init", "phase", *argv), theirs.kubeadm("init", "phase", *argv)
    assert (mine.code, mine.err if mine.code else "") == (other.code, mine.err if other.code else ""), other.err
    if lines:
        assert lines_of(mine) == lines_of(other)
    assert ours.files() == theirs.files()
    same = [name for name in ours.files() if name.startswith(BYTES)]
    assert {name: ours.text(name) for name in same} == {name: theirs.text(name) for name in same}
    return mine, other


def test_single_phases_make_the_same_machine_as_kubeadm(tmp_path):
    ours, theirs = machines(tmp_path)
    for leaf in LEAVES:
        mine, _ = require_same(ours, theirs, *leaf, *CONFIG)
        assert not any("Using certificate directory" in line or "Using kubeconfig directory" in line for line in mine.out.splitlines())
    assert len([name for name in ours.files() if name.startswith("etc/kubernetes/pki/") and "." in name]) == 22


def test_all_phases_make_the_same_machine_and_name_the_same_files_as_kubeadm(tmp_path):
    ours, theirs = machines(tmp_path)
    for leaf in ALL:
        mine, _ = require_same(ours, theirs, *leaf, *CONFIG)
        assert mine.code == 0
    before = {name: ours.text(name) for name in ours.files() if (ours.root / name).is_file()}
    for leaf in ALL:
        require_same(ours, theirs, *leaf, *CONFIG, lines=False)
    assert {name: ours.text(name) for name in ours.files() if (ours.root / name).is_file()} == before


@pytest.mark.parametrize("cluster", ["etcd: {external: {endpoints: ['https://10.0.0.1:2379'], caFile: /a, certFile: /b, keyFile: /c}}\n"])
def test_external_etcd_leaves_out_the_same_phases_as_with_kubeadm(tmp_path, cluster):
    ours, theirs = machines(tmp_path, cluster=cluster)
    for leaf in ALL:
        require_same(ours, theirs, *leaf, *CONFIG, lines=False)


def test_an_external_ca_requires_the_same_files_as_with_kubeadm(tmp_path):
    ours, theirs = machines(tmp_path)
    for leaf in ALL[:2]:
        require_same(ours, theirs, *leaf, *CONFIG)
    for machine in (ours, theirs):
        for name in ("ca.key", "front-proxy-ca.key"):
            (machine.root / "etc/kubernetes/pki" / name).unlink()
    for leaf in ALL:
        mine, _ = require_same(ours, theirs, *leaf, *CONFIG, lines=False)
        assert mine.code == 0
    missing = [
        "scheduler.conf",
        "admin.conf",
        "kubelet.conf",
        "pki/apiserver.key",
        "pki/apiserver-kubelet-client.crt",
        "pki/front-proxy-client.crt",
    ]
    for name in missing:
        kept = {machine: machine.text(f"etc/kubernetes/{name}") for machine in (ours, theirs)}
        for machine in kept:
            (machine.root / "etc/kubernetes" / name).unlink()
        for leaf in (("kubelet-start",), ("certs", "etcd-ca")):
            mine, _ = require_same(ours, theirs, *leaf, *CONFIG, lines=False)
            assert mine.code == 1
        for machine, text in kept.items():
            (machine.root / "etc/kubernetes" / name).write_text(text)
            (machine.root / "etc/kubernetes" / name).chmod(0o600)


VARIABLES = {
    "https_proxy": "http://proxy.example.com:3128",
    "HTTP_PROXY": "http://proxy.example.com:3128",
    "no_proxy": "10.0.0.0/8,.svc",
    "All_Proxy": "socks5://1.2.3.4",
    "FTP_PROXY": "",
    "PROXY": "none of them",
    "_proxy": "x",
    "PATH": "/bin",
}
EXTRA = """\
apiServer:
  extraEnvs: [{name: no_proxy, value: mine}, {name: A, value: b}, {name: From, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
etcd: {local: {extraEnvs: [{name: HTTPS_PROXY, value: only}]}}
"""


@pytest.mark.parametrize("cluster", ["", EXTRA])
def test_proxy_variables_reach_the_same_components_as_with_kubeadm(tmp_path, cluster):
    ours, theirs = machines(tmp_path, cluster=cluster, environment=VARIABLES)
    for leaf in (("etcd", "local"), ("control-plane", "all")):
        require_same(ours, theirs, *leaf, *CONFIG)
    found = yaml.load(ours.text("etc/kubernetes/manifests/kube-scheduler.yaml"))["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in found] == ["All_Proxy", "HTTP_PROXY", "_proxy", "https_proxy", "no_proxy"]


STRUCTURED = {
    "authorization-config": "{name: authorization-config, value: /etc/kubernetes/authz.yaml}",
    "authorization-config and a mode": "{name: authorization-mode, value: RBAC}, {name: authorization-config, value: /a.yaml}",
    "authentication-config": "{name: authentication-config, value: /etc/kubernetes/authn.yaml}",
    "an unknown mode": "{name: authorization-mode, value: 'Node,Nobody'}",
    "two modes": "{name: authorization-mode, value: RBAC}, {name: authorization-mode, value: Node}",
    "no mode": "{name: authorization-mode, value: ''}",
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_authorization_and_authentication_give_the_flags_of_kubeadm(tmp_path, name):
    ours, theirs = machines(tmp_path, cluster=f"apiServer: {{extraArgs: [{STRUCTURED[name]}]}}\n")
    mine, _ = require_same(ours, theirs, "control-plane", "apiserver", *CONFIG)
    assert mine.code == 0


FAILURES = {
    "a leaf without its authority": ("certs", "apiserver"),
    "a kubeconfig without the authority": ("kubeconfig", "admin"),
    "etcd's leaf without its authority": ("certs", "etcd-server"),
    "show-join-command alone": ("show-join-command",),
}


@pytest.mark.parametrize("name", FAILURES)
def test_the_same_phases_fail_as_with_kubeadm(tmp_path, name):
    ours, theirs = machines(tmp_path)
    argv = FAILURES[name]
    words = argv if argv == ("show-join-command",) else (*argv, *CONFIG)
    mine, other = require_same(ours, theirs, *words, lines=False)
    assert mine.code == 1
    if argv == ("show-join-command",):
        assert "unresolved dependencies" in mine.err
        assert "unresolved dependencies" in other.err


BROKEN = {"ca.crt": ("certs", "ca"), "apiserver.crt": ("certs", "apiserver"), "sa.key": ("certs", "sa"), "ca.key": ("certs", "apiserver")}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_stops_the_same_phases_as_with_kubeadm(tmp_path, name):
    ours, theirs = machines(tmp_path)
    for machine in (ours, theirs):
        if name != "ca.crt":
            machine.kubeadm("init", "phase", "certs", "ca", *CONFIG)
        (machine.root / "etc/kubernetes/pki").mkdir(parents=True, exist_ok=True)
        (machine.root / "etc/kubernetes/pki" / name).write_text("broken")
        (machine.root / "etc/kubernetes/pki" / name).chmod(0o600)
    mine, _ = require_same(ours, theirs, *BROKEN[name], *CONFIG, lines=False)
    assert mine.code == 1


ROOTLESS = "featureGates: {RootlessControlPlane: true}\n"
ACCOUNTS = {
    "nothing but root": ("root:x:0:0:root:/root:/bin/bash\n", "root:x:0:\n", None),
    "others in the range": (
        "root:x:0:0::/:/bin/sh\nmail:x:100:1::/:/bin/false\nx:x:102:2::/:/bin/false",
        "root:x:0:\na:x:101:x,y\nb:x:103:\n",
        "SYS_UID_MIN 100\nSYS_UID_MAX 200\nSYS_GID_MIN 101\n",
    ),
    "two of ours": (
        "root:x:0:0::/:/bin/sh\nkubeadm-kas:x:150:151::/:/bin/false\n",
        "root:x:0:\nkubeadm-kas:x:151:kubeadm-kas\nkubeadm-sa-key-readers:x:160:kubeadm-kas,kubeadm-kcm\n",
        None,
    ),
    "a login shell": ("root:x:0:0::/:/bin/sh\nkubeadm-kas:x:150:151::/:/bin/bash\n", "root:x:0:\nkubeadm-kas:x:151:kubeadm-kas\n", None),
    "other members": ("root:x:0:0::/:/bin/sh\n", "root:x:0:\nkubeadm-etcd:x:151:me\n", None),
    "no room": ("root:x:0:0::/:/bin/sh\n", "root:x:0:\n", "SYS_UID_MIN 100\nSYS_UID_MAX 101\n"),
    "no users at all": (None, None, None),
    "a broken line": ("root:x:0\n", "root:x:0:\n", None),
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_a_rootless_control_plane_gets_the_users_and_owners_of_kubeadm(tmp_path, name):
    given = dict(zip(("etc/passwd", "etc/group", "etc/login.defs"), ACCOUNTS[name], strict=True))
    files = {path: text for path, text in given.items() if text is not None}
    ours, theirs = machines(tmp_path, cluster=ROOTLESS, files=files)
    codes = [require_same(ours, theirs, *leaf, *CONFIG, lines=False)[0].code for leaf in ALL]
    assert codes == ([0] * 5 if name in {"nothing but root", "others in the range", "two of ours"} else [0, 0, 1, 1, 0])
    assert [ours.text(path) for path in files] == [theirs.text(path) for path in files]


def test_a_printed_kube_proxy_equals_that_of_kubeadm(tmp_path):
    ours, theirs = machines(tmp_path)
    mine, other = (run("init", "phase", "addon", "kube-proxy", "--print-manifest", *CONFIG) for run in (ours.kubewright, theirs.kubeadm))
    assert (mine.code, other.code) == (0, 0)
    kinds = [[document.value["kind"] for document in yaml.load_all(done.out) if document.value] for done in (mine, other)]
    assert kinds[0] == kinds[1]
