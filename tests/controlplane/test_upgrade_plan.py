"""`upgrade plan` and `upgrade diff` compared with real kubeadm, with the same cluster and the same manifests."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
from server_kit import api_server

from kubewright import binaries
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.base.errors import AlreadyExists, NotFound
from kubewright.base.level import KUBERNETES
from kubewright.base.records import replace
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.host.real import RealHost
from kubewright.kube import resources
from kubewright.manifests.coredns import corefile

SPACE = "kube-system"
HOST = socket.gethostname().lower()
CLUSTER = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.1
networking: {{serviceSubnet: 10.96.0.0/12, podSubnet: 10.244.0.0/16}}
apiServer: {{extraArgs: [{{name: v, value: "4"}}], certSANs: [{HOST}]}}
"""
MAPS = {
    "kubeadm-config": {"ClusterConfiguration": CLUSTER},
    "kubelet-config": {"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"},
    "kube-proxy": {"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"},
}
ENDPOINT = "10.98.0.11:6443"


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


def pod(component: str, image: str) -> dict[str, object]:
    annotations = {"kubernetes.io/config.mirror": "x", "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": ENDPOINT}
    metadata = {
        "name": f"{component}-{HOST}",
        "namespace": SPACE,
        "labels": {"component": component, "tier": "control-plane"},
        "annotations": annotations,
    }
    spec = {"nodeName": HOST, "hostNetwork": True, "containers": [{"name": component, "image": f"registry.k8s.io/{component}:{image}"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def objects() -> list[dict[str, object]]:
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": n, "namespace": SPACE}, "data": data} for n, data in MAPS.items()
    ]
    tags = {"kube-apiserver": "v1.36.1", "kube-controller-manager": "v1.36.1", "kube-scheduler": "v1.36.0", "etcd": "3.6.8-0"}
    labels = {"k8s-app": "kube-dns"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "coredns", "image": "registry.k8s.io/coredns:v1.13.1"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "coredns", "namespace": SPACE, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    return [*maps, *(pod(name, tag) for name, tag in tags.items()), deployment]


class Cluster:
    """An API server with the objects that both programs read, its administrator's kubeconfig, and a root directory with manifests."""

    def __init__(self, apiserver, client, place: Path) -> None:
        self.client, self.root = client, place / "root"
        (self.root / "etc/kubernetes/manifests").mkdir(parents=True)
        self.kubeconfig = self._kubeconfig(apiserver, "admin.conf", "kubernetes-admin", "system:masters")
        self._kubeconfig(apiserver, "kubelet.conf", f"system:node:{HOST}", "system:nodes")  # kubeadm uses it for the Node's name

    def _kubeconfig(self, apiserver, name: str, user: str, group: str) -> Path:
        identity = apiserver.identity(user, group)
        credentials = EmbeddedCertificate(certificate_pem=identity.cert_pem, key_pem=identity.key_pem)
        document = kubeconfig_document(
            server=apiserver.url, cluster_name="kubernetes", user="user", ca_pem=apiserver.ca_pem, credentials=credentials
        )
        path = self.root / "etc/kubernetes" / name
        path.write_text(yaml.dump(document))
        return path

    def kubewright(self, *argv: str) -> Run:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["upgrade", *argv, "--kubeconfig", str(self.kubeconfig)])
        return Run(code, out.getvalue(), err.getvalue())

    def kubeadm(self, *argv: str) -> Run:
        """Run kubeadm with the root directory as its own; ordinary users need a user namespace for that."""
        found = binaries.locate(("kubeadm",), version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
        if "kubeadm" not in found:
            pytest.skip("no kubeadm: run `kubewright binaries fetch kubeadm`, or set KUBEWRIGHT_BINARIES_DIR")
        inside = [] if os.geteuid() == 0 else ["unshare", "-r"]
        words = [*inside, str(found["kubeadm"].path), f"--rootfs={self.root}", "upgrade", *argv]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=900, env={"PATH": os.environ["PATH"]})
        return Run(done.returncode, done.stdout, done.stderr)


class Rooted:
    """A machine whose files are below a directory, at their usual paths."""

    def __init__(self, root: Path, layout: Layout) -> None:
        self._host, self._root, self.layout = RealHost(layout=layout), root, layout
        # The directory contains no certificates of an operating system.
        self.facts = SimpleNamespace(detected=replace(self._host.facts.detected, ca_directories=()), user=os.geteuid())

    def read(self, path: PurePosixPath) -> bytes | None:
        return self._host.read(PurePosixPath(self._root) / path.relative_to("/"))


@pytest.fixture(scope="module")
def apiserver(tmp_path_factory):
    """A separate API server, because the objects that a plan reads have fixed names."""
    with api_server(tmp_path_factory.mktemp("upgrades")) as running:
        yield running


@pytest.fixture
def cluster(apiserver, admin, tmp_path, monkeypatch):
    made = objects()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": HOST}, "spec": {"unschedulable": True}}
    node["metadata"]["annotations"] = {"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///var/run/containerd/containerd.sock"}
    with contextlib.suppress(AlreadyExists):
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    stored = admin.create(node)
    admin.update({**stored, "status": {**stored.get("status", {}), "nodeInfo": {**NODE_INFO}}}, subresource="status")
    for one in made:
        admin.create(one)
    cluster = Cluster(apiserver, admin, tmp_path)
    monkeypatch.setattr("sys.argv", ["kubeadm"])
    monkeypatch.setattr(cli_machine, "host", lambda layout: Rooted(cluster.root, layout))
    yield cluster
    for one in [*made, node]:
        with contextlib.suppress(NotFound):
            admin.delete(resources.of(one), one["metadata"]["name"], one["metadata"].get("namespace"), grace_seconds=0)


NODE_INFO = dict.fromkeys(
    (
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ),
    "x",
) | {"kubeletVersion": "v1.35.4"}

PLANS = (
    ["v1.36.2"],
    ["v1.36.3"],
    ["v1.36.9"],
    ["v1.37.0"],
    ["v1.36.1"],
    ["v1.35.9"],
    ["v1.36.2", "--etcd-upgrade=false"],
    ["v1.37.0-rc.1", "--allow-release-candidate-upgrades"],
    ["v1.37.0-rc.1", "--allow-experimental-upgrades", "--allow-release-candidate-upgrades"],
    ["v1.37.0-alpha.2", "--allow-experimental-upgrades"],
)


def rows(text: str) -> list[str]:
    """What scripts look for: tables, the command, the versions, the lines between them."""
    wanted = ("COMPONENT", "kube", "etcd", "CoreDNS", "API GROUP", "\t", "____", "[upgrade")
    return [line for line in text.splitlines() if line.startswith(wanted)]


@pytest.mark.parametrize("words", PLANS, ids=" ".join)
def test_the_plan_equals_that_of_kubeadm(cluster, words):
    theirs = cluster.kubeadm("plan", *words, "--ignore-preflight-errors=all")
    ours = cluster.kubewright("plan", *words, "--ignore-preflight-errors=all")
    assert (ours.code, theirs.code) == (0, 0), ours.err + theirs.err
    assert rows(ours.out) == rows(theirs.out)
    theirs = cluster.kubeadm("plan", *words, "--ignore-preflight-errors=all", "-o", "json")
    assert cluster.kubewright("plan", *words, "--ignore-preflight-errors=all", "-o", "json").out == theirs.out


def test_kubelets_that_are_newer_than_an_api_server_are_warned_about(cluster):
    """kubeadm only lists them."""
    node = cluster.client.get(resources.NODE, HOST)
    cluster.client.update(
        {**node, "status": {**node["status"], "nodeInfo": {**NODE_INFO, "kubeletVersion": "v1.37.0"}}}, subresource="status"
    )
    words = ("plan", "v1.36.3", "--ignore-preflight-errors=all")
    theirs, ours = cluster.kubeadm(*words), cluster.kubewright(*words)
    assert (ours.code, theirs.code) == (0, 0), ours.err + theirs.err
    assert rows(ours.out) == rows(theirs.out)
    warned = f"the kubelets on {HOST} have v1.37.0, and an API server has v1.36.1"
    assert (warned in ours.err, "v1.37.0" in theirs.err) == (True, False)


def test_the_other_formats_equal_those_of_kubeadm(cluster):
    for form in ("yaml", "kyaml", "jsonpath={.availableUpgrades[*].description}"):
        words = ("plan", "v1.36.2", "--ignore-preflight-errors=all", "-o", form)
        assert cluster.kubewright(*words).out == cluster.kubeadm(*words).out


def test_without_a_version_the_newest_is_our_own(cluster):
    """kubeadm asks the network; if nothing answers, it uses its own version too."""
    manifests(cluster, "v1.36.1")
    ours = cluster.kubewright("plan")
    assert ours.code == 0
    assert "versions are not looked up" in ours.err
    assert "`kubeadm upgrade plan VERSION`" in ours.err
    assert f"\tkubeadm upgrade apply {KUBERNETES}\n" in ours.out


def test_the_configuration_is_printed_on_request(cluster):
    out = cluster.kubewright("plan", "v1.36.2", "--print-config", "--ignore-preflight-errors=all").out
    assert "\tkubernetesVersion: v1.36.1\n" in out


@pytest.mark.parametrize(
    ("ready", "written", "failing"), [("False", True, 1), ("True", False, 1), ("True", True, 0), ("Unknown", False, 2)]
)
def test_an_unhealthy_cluster_stops_the_plan(cluster, ready, written, failing):
    if written:
        manifests(cluster, "v1.36.1")
    node = cluster.client.get(resources.NODE, HOST)
    node["metadata"].setdefault("labels", {})["node-role.kubernetes.io/control-plane"] = ""
    node = cluster.client.update(node)
    condition = {"type": "Ready", "status": ready, "reason": "x", "message": "x"}
    cluster.client.update({**node, "status": {**node["status"], "conditions": [condition]}}, subresource="status")
    theirs = cluster.kubeadm("plan", "v1.36.2", "--ignore-preflight-errors=CoreDNSUnsupportedPlugins,CoreDNSMigration")
    ours = cluster.kubewright("plan", "v1.36.2")
    assert (ours.code, theirs.code) == (bool(failing), bool(failing))
    names = [[name for name in ("ControlPlaneNodesReady", "StaticPodManifest") if f"[ERROR {name}]" in run.err] for run in (ours, theirs)]
    assert names[0] == names[1]
    assert len(names[0]) == failing


BLOCK = ".:53 {{\n    errors\n{}\n}}\n"
COREFILES = {
    "kubeadm's own": ("v1.13.1", corefile("cluster.local")),
    "an own domain, comments, quotes": (
        "v1.12.0",
        '# DNS\nexample.org:53 .:53 { # ours\n log\n forward . 1.1.1.1 {\n policy "round robin"\n }\n}\n',
    ),
    "nothing": ("v1.13.1", ""),
    "no Corefile at all": ("v1.13.1", None),
    "an unknown plugin": ("v1.13.1", BLOCK.format("    template IN A {\n answer x\n }\n    whoami")),
    "an unknown plugin in the release of the target": ("v1.14.2", BLOCK.format("    whoami")),
    "an unknown option": ("v1.11.3", BLOCK.format("    cache 30 {\n keepttl\n verify 3\n }")),
    "options that came and went": (
        "v1.11.4",
        BLOCK.format("    forward . 1.1.1.1 {\n next SERVFAIL\n fail_fast\n }\n    rewrite {\n ttl\n }"),
    ),
    "options that are gone": ("v1.6.2", BLOCK.format("    kubernetes cluster.local {\n upstream\n ttl 30\n transfer to *\n }")),
    "a plugin that is gone": ("v1.4.0", BLOCK.format("    proxy . /etc/resolv.conf {\n spray\n }\n    ready")),
    "hosts": ("v1.13.1", BLOCK.format("    hosts {\n 10.0.0.1 a\n fd00::1 b\n ttl 5\n fallthrough\n other\n }")),
    "braces in odd places": ("v1.13.1", "a { b { c { d\n } } }\ne {\n cache { success 1\n }\n }\nf\n{\n chaos }\n}\n"),
    "a zone of its own": ("v1.3.1", BLOCK.format("    forward . 1.1.1.1\n    forward example.org 10.0.0.1")),
    "a zone in a block of another": ("v1.3.1", "example.com {\n forward example.org 10.0.0.1\n}\n"),
    "a zone that is not named": ("v1.2.6", BLOCK.format("    proxy")),
    "a zone in a block of another, later": ("v1.5.0", "example.com {\n forward example.org 10.0.0.1\n}\n"),
    "a release that nobody knows": ("v1.13.1-own", corefile("cluster.local")),
    "a newer release": ("v1.14.6", corefile("cluster.local")),
    "a release between two": ("v1.11.2", corefile("cluster.local")),
}


@contextlib.contextmanager
def coredns(cluster, tag: str, text: str | None):
    """Let the cluster run CoreDNS of a version with a Corefile."""
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coredns", "namespace": SPACE}}
    cluster.client.create({**made, "data": {"other": ""} if text is None else {"Corefile": text}})
    deployment = cluster.client.get(resources.DEPLOYMENT, "coredns", SPACE)
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = f"registry.k8s.io/coredns/coredns:{tag}"
    cluster.client.update(deployment)
    try:
        yield
    finally:
        cluster.client.delete(resources.CONFIG_MAP, "coredns", SPACE)


@pytest.mark.parametrize("case", COREFILES)
def test_the_configuration_of_coredns_is_judged_as_kubeadm_does(cluster, case):
    words = ("plan", "v1.36.3", "--ignore-preflight-errors=StaticPodManifest")
    with coredns(cluster, *COREFILES[case]):
        theirs, ours = cluster.kubeadm(*words), cluster.kubewright(*words)
    failing = [
        [name for name in ("CoreDNSUnsupportedPlugins", "CoreDNSMigration") if f"[ERROR {name}]" in run.err] for run in (ours, theirs)
    ]
    assert failing[0] == failing[1], ours.err + theirs.err
    assert (ours.code, theirs.code) == (bool(failing[0]), bool(failing[0])), ours.err + theirs.err
    told = {
        (name or plugin, option)
        for name, option, plugin in re.findall(r'Plugin "([^"]*)"|Option "([^"]*)" in plugin "([^"]*)"', theirs.err)
    }
    assert told == {(plugin, option) for option, plugin in re.findall(r"whether the (?:option (\S+) of the )?plugin (\S+) in", ours.err)}


def test_a_cluster_without_coredns_of_kubeadm_has_nothing_to_migrate(cluster):
    """kubeadm fails, even if the configuration says that there is none."""
    words = ("plan", "v1.36.3", "--ignore-preflight-errors=StaticPodManifest")
    assert cluster.kubewright(*words).code == 0
    assert "[ERROR CoreDNSMigration]" in cluster.kubeadm(*words).err


def finish_jobs(cluster, ended: threading.Event, found: list[dict], *, outcome: str) -> None:
    """Do what kube-controller-manager and a kubelet would do: complete each Job as soon as it exists."""
    first = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[outcome]
    now = "2026-01-01T00:00:00Z"
    conditions = [{"type": kind, "status": "True", "reason": "Tried", "message": "so it is"} for kind in (first, outcome)]
    status = {"startTime": now, "conditions": conditions, **({"completionTime": now, "succeeded": 1} if outcome == "Complete" else {})}
    while not ended.wait(0.05):
        for job in cluster.client.list(resources.named("Job"), SPACE):
            if not job.get("status", {}).get("conditions"):
                cluster.client.update({**job, "status": status}, subresource="status")
                found.append(job)


@contextlib.contextmanager
def jobs(cluster, *, outcome: str):
    """Create a Node that takes pods, and complete the Jobs that are created for it, which are yielded."""
    node = cluster.client.get(resources.NODE, HOST)
    cluster.client.update({**node, "spec": {**node["spec"], "unschedulable": False}})
    ended, found = threading.Event(), []
    worker = threading.Thread(target=finish_jobs, args=(cluster, ended, found), kwargs={"outcome": outcome})
    worker.start()
    try:
        yield found
    finally:
        ended.set()
        worker.join(10)


def test_the_cluster_runs_the_same_job_for_both(cluster):
    words = ("plan", "v1.36.3", "--ignore-preflight-errors=StaticPodManifest,CoreDNSUnsupportedPlugins,CoreDNSMigration")
    with jobs(cluster, outcome="Complete") as found:
        theirs, ours = cluster.kubeadm(*words), cluster.kubewright(*words)
    assert (ours.code, theirs.code) == (0, 0), ours.err + theirs.err
    assert len(found) == 2
    assert all(re.fullmatch(r"upgrade-health-check-\d{13}", job["metadata"]["name"]) for job in found)
    unique = re.compile("|".join(job["metadata"][key] for job in found for key in ("name", "uid")))
    assert unique.sub("", str(found[0]["spec"])) == unique.sub("", str(found[1]["spec"]))


def test_a_failing_job_is_reported_at_once(cluster):
    """kubeadm waits its minute, and does not say why."""
    with jobs(cluster, outcome="Failed") as found:
        ours = cluster.kubewright("plan", "v1.36.3", "--ignore-preflight-errors=StaticPodManifest")
    assert (ours.code, len(found)) == (1, 1)
    assert "[ERROR CreateJob]" in ours.err
    assert "failed: so it is" in ours.err


def manifests(cluster, version: str) -> None:
    """Write manifests of another version where both programs look for them."""
    config = cluster.root / "kubeadm.yaml"
    init = f"---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {{advertiseAddress: {ENDPOINT.partition(':')[0]}}}\n"
    config.write_text(CLUSTER.replace("v1.36.1", version).replace('"4"', '"2"') + init)
    inside = cluster.root / "etc/kubernetes/manifests"
    words = ["init", "phase", "control-plane", "all", "--config", "/kubeadm.yaml"]
    program = binaries.locate(("kubeadm",), version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
    if "kubeadm" not in program:
        pytest.skip("no kubeadm: run `kubewright binaries fetch kubeadm`, or set KUBEWRIGHT_BINARIES_DIR")
    own = [] if os.geteuid() == 0 else ["unshare", "-r"]
    subprocess.run([*own, str(program["kubeadm"].path), f"--rootfs={cluster.root}", *words], check=True, capture_output=True, timeout=900)
    assert len(list(inside.iterdir())) == 3


def pieces(text: str) -> dict[str, str]:
    """The diffs by manifest; kubeadm prints them in random order."""
    return {piece.partition("\n")[0]: piece for piece in text.split("--- ")[1:]}


@pytest.mark.parametrize("words", [["-c", "3"], ["-c", "0"], ["v1.36.3", "-c", "10"], ["v1.35.4", "-c1"]], ids=" ".join)
def test_the_differences_equal_those_of_kubeadm(cluster, words):
    manifests(cluster, "v1.36.0")
    theirs, ours = cluster.kubeadm("diff", *words), cluster.kubewright("diff", *words)
    assert (ours.code, theirs.code) == (0, 0), ours.err + theirs.err
    assert pieces(ours.out) == pieces(theirs.out)
    assert len(pieces(ours.out)) == 3
    assert ours.out.splitlines()[:2] == theirs.out.splitlines()[:2]
    assert ours.out.splitlines()[2] == "--- /etc/kubernetes/manifests/kube-apiserver.yaml"


def test_three_lines_of_context_are_the_default(cluster):
    """kubeadm's help says so, but it shows none."""
    manifests(cluster, "v1.36.0")
    assert pieces(cluster.kubewright("diff").out) == pieces(cluster.kubeadm("diff", "-c", "3").out)
    assert pieces(cluster.kubeadm("diff").out) == pieces(cluster.kubeadm("diff", "-c", "0").out)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_differences_are_available_as_data(cluster, form):
    manifests(cluster, "v1.36.0")
    text, ours = cluster.kubewright("diff").out, cluster.kubewright("diff", "-o", form)
    found = yaml.load(ours.out)
    assert (ours.code, ours.err, found["differs"]) == (0, "", True)
    assert [one["manifest"] for one in found["manifests"]] == [line[4:] for line in text.splitlines() if line.startswith("--- /")]
    assert "".join(one["diff"] for one in found["manifests"]) == "".join(text.splitlines(keepends=True)[2:])


def test_an_address_with_leading_zeros_does_not_resolve(cluster):
    """For Go it is a name that does not exist; the C library would read its numbers as octal ones."""
    text = cluster.kubeconfig.read_text()
    [address] = re.findall(r"https://(127[0-9.]+):", text)
    cluster.kubeconfig.write_text(text.replace(f"//{address}:", f"//{'.'.join(f'{int(one):03}' for one in address.split('.'))}:"))
    theirs, ours = cluster.kubeadm("plan", "v1.36.3"), cluster.kubewright("plan", "v1.36.3")
    assert (ours.code, theirs.code) == (1, 1)
    assert "no such host" in theirs.err
    assert "does not resolve" in ours.err


def test_missing_manifests_are_reported(cluster):
    ours = cluster.kubewright("diff")
    assert ours.code == cluster.kubeadm("diff").code == 1
    assert 'the manifest "/etc/kubernetes/manifests/kube-apiserver.yaml" is not there' in ours.err
