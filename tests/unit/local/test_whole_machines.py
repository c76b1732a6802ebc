"""Clusters of whole machines: their documents, members, owner, checks of the host, and what status shows. Pure parts only."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kubewright import binaries
from kubewright.apis.kubeconfig.documents import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.checks import Finding
from kubewright.base.errors import CertificateError, CheckFailed, DocumentError, HostError, UsageError, ValidationError
from kubewright.base.level import KUBERNETES
from kubewright.base.records import replace
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import LEASE
from kubewright.local import mounts, published, record, up_options
from kubewright.local.cluster import status as clusters
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.up_options import UpOptions
from kubewright.local.whole import (
    documents,
    endpoints,
    images,
    kernel,
    machines,
    members,
    owner,
    preflight,
    removal,
    resolvers,
    status,
    subnets,
    up,
)
from other_user import readable

__all__ = ["readable"]
TOKEN = "abcdef.0123456789abcdef"
FIRST = LocalMachineRecord(name="dev-control-plane", address="172.30.4.11")
CLUSTER = ClusterRecord(name="dev", id="0" * 32, machines=(FIRST,), nodes=2, kind=record.MACHINES)
ALONE = replace(CLUSTER, nodes=0)
SECOND = LocalMachineRecord(name="dev-control-plane-2", address="172.30.4.12")
THIRD = LocalMachineRecord(name="dev-control-plane-3", address="172.30.4.13")
SEVERAL = replace(CLUSTER, machines=(FIRST, SECOND, THIRD))
SINCE = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC).timestamp()
CREDENTIALS = documents.Credentials(token=TOKEN, certificate_key="0" * 64)


def of_kind(text: str, kind: str) -> dict[str, Any]:
    (found,) = [document.value for document in yaml.load_all(text) if document.value["kind"] == kind]
    return found


def init(cluster: ClusterRecord = CLUSTER, *, unverified: bool = False) -> str:
    return documents.of_init(cluster, FIRST, within=300, unverified=unverified)


def test_documents_have_what_machines_need_without_a_file_of_the_user() -> None:
    assert of_kind(init(), "InitConfiguration") == {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": "172.30.4.11", "bindPort": 6443},
        "nodeRegistration": {"name": "dev-control-plane"},
        "timeouts": {"controlPlaneComponentHealthCheck": "300s"},
    }
    cluster = of_kind(init(), "ClusterConfiguration")
    assert (cluster["controlPlaneEndpoint"], cluster["networking"]) == ("api.kubewright.internal:6443", {"podSubnet": "10.244.0.0/16"})
    kubelet = of_kind(init(), "KubeletConfiguration")
    assert (kubelet["failCgroupV1"], kubelet["failSwapOn"]) == (False, False)
    assert of_kind(init(), "KubeProxyConfiguration")["conntrack"] == {"maxPerCore": 0}


def test_pods_run_on_the_only_machine_and_a_host_that_cannot_be_verified_is_accepted() -> None:
    assert of_kind(init(ALONE), "InitConfiguration")["nodeRegistration"]["taints"] == []
    registration = of_kind(init(unverified=True), "InitConfiguration")["nodeRegistration"]
    assert registration == {"name": "dev-control-plane", "ignorePreflightErrors": ["SystemVerification"]}


def test_the_users_documents_are_kept_and_completed() -> None:
    config = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer: {extraArgs: [{name: v, value: "4"}]}
networking: {serviceSubnet: 10.97.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 50
evictionHard: {memory.available: 1Gi}
"""
    text = init(replace(CLUSTER, config=config))
    cluster, kubelet = of_kind(text, "ClusterConfiguration"), of_kind(text, "KubeletConfiguration")
    assert cluster["apiServer"] == {"extraArgs": [{"name": "v", "value": "4"}]}
    assert cluster["networking"] == {"serviceSubnet": "10.97.0.0/16", "podSubnet": "10.244.0.0/16"}
    assert (kubelet["maxPods"], kubelet["cgroupDriver"]) == (50, "cgroupfs")
    assert kubelet["evictionHard"] | {"memory.available": "1Gi"} == kubelet["evictionHard"]


def test_fields_that_the_cluster_chooses_are_refused_by_path() -> None:
    config = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.0.0.1}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
certificatesDir: /etc/pki
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {tlsBootstrapToken: abcdef.0123456789abcdef}
"""
    with pytest.raises(ValidationError) as caught:
        documents.require_valid(config)
    assert sorted(str(error.path) for error in caught.value.errors) == ["certificatesDir", "discovery", "localAPIEndpoint"]
    documents.require_valid("")


def test_a_configuration_of_kind_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(DocumentError, match="is a configuration of kind") as caught:
        documents.require_valid("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes: [{role: control-plane}, {role: worker}]\n")
    assert "--nodes" in caught.value.remedy


@pytest.mark.parametrize(
    ("kind", "fields", "path"),
    [
        ("ClusterConfiguration", {"networking": {"dnsDomain": "not a domain"}}, "networking.dnsDomain"),
        ("InitConfiguration", {"nodeRegistration": {"taints": "none"}}, "nodeRegistration.taints"),
        ("KubeletConfiguration", {"maxPods": "many"}, "maxPods"),
        ("JoinConfiguration", {"nodeRegistration": {"taints": "none"}}, "nodeRegistration.taints"),
        ("JoinConfiguration", {"timeouts": {"discovery": "soon"}}, "timeouts.discovery"),
    ],
)
def test_documents_that_init_or_join_would_refuse_are_refused_before_anything_is_made(kind: str, fields: dict[str, Any], path: str) -> None:
    version = "kubelet.config.k8s.io/v1beta1" if kind == "KubeletConfiguration" else "kubeadm.k8s.io/v1beta4"
    with pytest.raises(ValidationError) as caught:
        documents.require_valid(json.dumps({"apiVersion": version, "kind": kind, **fields}))
    assert [str(error.path) for error in caught.value.errors] == [path]


def test_valid_documents_are_accepted() -> None:
    six = networking(serviceSubnet="fd00:96::/112")
    labels = {"kubeletExtraArgs": [{"name": "node-labels", "value": "disk=ssd"}], "taints": [{"key": "reserved", "effect": "NoSchedule"}]}
    worker = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration", "nodeRegistration": labels}
    older = {**worker, "apiVersion": "kubeadm.k8s.io/v1beta3", "nodeRegistration": {"kubeletExtraArgs": {"node-labels": "disk=ssd"}}}
    for config in (
        json.dumps(worker),
        json.dumps(older),
        "",
        DUAL,
        six,
        networking(),
        DUAL.replace("v1beta4", "v1beta3").replace('[{name: v, value: "4"}]', '{v: "4"}'),
    ):
        documents.require_valid(config)


def test_a_run_has_a_token_of_its_own_and_the_time_that_the_command_waits() -> None:
    run = of_kind(documents.for_run(init(), credentials=CREDENTIALS, within=600), "InitConfiguration")
    assert (run["bootstrapTokens"], run["certificateKey"]) == ([{"token": TOKEN, "ttl": "15m0s"}], "0" * 64)
    # it is part of the static pods, which another --wait does not change
    assert run["timeouts"].pop("controlPlaneComponentHealthCheck") == "300s"
    assert (len(run["timeouts"]), set(run["timeouts"].values())) == (5, {"600s"})
    assert {"bootstrapTokens", "certificateKey"}.isdisjoint(of_kind(init(), "InitConfiguration"))


def test_time_outs_of_the_user_win_and_older_documents_have_none() -> None:
    newer = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\ntimeouts: {discovery: 7s}\n"
    older = "apiVersion: kubeadm.k8s.io/v1beta3\nkind: InitConfiguration\n"
    runs = [documents.for_run(init(replace(CLUSTER, config=config)), credentials=CREDENTIALS, within=600) for config in (newer, older)]
    first, second = (of_kind(run, "InitConfiguration") for run in runs)
    assert (first["timeouts"]["discovery"], first["timeouts"]["tlsBootstrap"]) == ("7s", "600s")
    assert "timeouts" not in second


def test_a_worker_joins_with_the_token_and_the_pins() -> None:
    found = join("dev-worker-1")
    bootstrap = {"token": TOKEN, "apiServerEndpoint": "api.kubewright.internal:6443", "caCertHashes": ["sha256:00"]}
    assert found["timeouts"]["tlsBootstrap"] == "90s"
    assert (found["discovery"], found["nodeRegistration"]) == ({"bootstrapToken": bootstrap}, {"name": "dev-worker-1"})
    assert "controlPlane" not in found


def test_a_further_control_plane_joins_with_its_address_and_the_key_of_the_certificates() -> None:
    assert join("dev-control-plane-2", "172.30.4.12")["controlPlane"] == {
        "localAPIEndpoint": {"advertiseAddress": "172.30.4.12", "bindPort": 6443},
        "certificateKey": "0" * 64,
    }


def join(name: str, *addresses: str, cluster: ClusterRecord = SEVERAL, unverified: bool = False) -> dict[str, Any]:
    credentials = replace(CREDENTIALS, pins=["sha256:00"])
    text = documents.of_join(cluster, name, addresses=addresses, credentials=credentials, within=90, unverified=unverified)
    return of_kind(text, "JoinConfiguration")


def test_machines_that_join_have_the_users_labels_taints_and_patches() -> None:
    config = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  ignorePreflightErrors: [Swap]
  kubeletExtraArgs: [{name: node-labels, value: disk=ssd}]
  taints: [{key: reserved, effect: NoSchedule}]
patches: {directory: /mnt/patches}
timeouts: {discovery: 7s}
"""
    cluster = replace(SEVERAL, config=config)
    assert "JoinConfiguration" not in init(cluster)
    worker = join("dev-worker-1", "172.30.4.61", "fd12::3d", cluster=cluster, unverified=True)
    registration = worker["nodeRegistration"]
    assert registration["kubeletExtraArgs"] == [
        {"name": "node-ip", "value": "172.30.4.61,fd12::3d"},
        {"name": "node-labels", "value": "disk=ssd"},
    ]
    assert registration["taints"] == [{"key": "reserved", "effect": "NoSchedule"}]
    assert registration["ignorePreflightErrors"] == ["Swap", "SystemVerification"]
    assert (worker["patches"], worker["timeouts"]["discovery"], worker["timeouts"]["tlsBootstrap"]) == (
        {"directory": "/mnt/patches"},
        "7s",
        "90s",
    )
    assert join("dev-control-plane-2", "172.30.4.12", cluster=cluster)["patches"] == {"directory": "/mnt/patches"}
    older = replace(cluster, config=config.replace("v1beta4", "v1beta3").partition("timeouts")[0])
    assert "timeouts" not in join("dev-worker-1", cluster=older)


def test_patches_that_machines_do_not_see_are_refused() -> None:
    kinds = ("InitConfiguration", "JoinConfiguration")
    config = "---\n".join(f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: {kind}\npatches: {{directory: /mnt/all/{kind}}}\n" for kind in kinds)
    documents.require_patches(config, [PurePosixPath("/mnt/all")])
    documents.require_patches("", [])
    documents.require_patches(config.replace("/mnt/all/InitConfiguration", '""').replace("/mnt/all/JoinConfiguration", '""'), [])
    for mounted in ([], [PurePosixPath("/mnt/other"), PurePosixPath("/mnt/all/InitConfiguration")]):
        with pytest.raises(ValidationError) as caught:
            documents.require_patches(config, mounted)
        assert [str(error.path) for error in caught.value.errors] == ["patches.directory"] * (1 if mounted else 2)
        assert "--mount" in caught.value.remedy


def test_the_users_taints_of_the_only_machine_and_waived_checks_are_kept() -> None:
    config = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {ignorePreflightErrors: [Swap], taints: [{key: reserved, effect: NoSchedule}]}
"""
    registration = of_kind(init(replace(ALONE, config=config), unverified=True), "InitConfiguration")["nodeRegistration"]
    assert registration["taints"] == [{"key": "reserved", "effect": "NoSchedule"}]
    assert registration["ignorePreflightErrors"] == ["Swap", "SystemVerification"]


def test_nothing_is_added_if_the_user_waives_all_checks() -> None:
    config = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration: {ignorePreflightErrors: [All]}\n"
    registration = of_kind(init(replace(ALONE, config=config), unverified=True), "InitConfiguration")["nodeRegistration"]
    assert registration["ignorePreflightErrors"] == ["All"]  # `all` cannot be combined with names of checks


DUAL = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: [{name: v, value: "4"}]}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {serviceSubnet: "10.96.0.0/16,fd00:10:96::/112"}
"""


def test_machines_of_a_dual_stack_cluster_tell_the_kubelet_both_addresses() -> None:
    first = replace(FIRST, second_address="fd12::b")
    cluster = replace(CLUSTER, machines=(first,), config=DUAL)
    text = documents.of_init(cluster, first, within=300, unverified=False)
    arguments = of_kind(text, "InitConfiguration")["nodeRegistration"]["kubeletExtraArgs"]
    assert arguments == [{"name": "node-ip", "value": "172.30.4.11,fd12::b"}, {"name": "v", "value": "4"}]
    assert of_kind(text, "ClusterConfiguration")["networking"]["podSubnet"] == "10.244.0.0/16,fd00:10:244::/56"
    addresses = members.addresses_of(cluster, "dev-worker-1")
    assert addresses == ("172.30.4.61", "fd12::3d")
    registration = join("dev-worker-1", *addresses)["nodeRegistration"]
    assert registration["kubeletExtraArgs"] == [{"name": "node-ip", "value": "172.30.4.61,fd12::3d"}]
    older = DUAL.replace("v1beta4", "v1beta3").replace('[{name: v, value: "4"}]', '{v: "4"}')
    text = documents.of_init(replace(cluster, config=older), first, within=300, unverified=False)
    assert of_kind(text, "InitConfiguration")["nodeRegistration"]["kubeletExtraArgs"] == {"node-ip": "172.30.4.11,fd12::b", "v": "4"}


def networking(**named: object) -> str:
    return json.dumps({"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "networking": named})


@pytest.mark.parametrize(
    ("named", "pods", "families"),
    [
        ({}, ("10.244.0.0/16",), ["a"]),
        ({"podSubnet": "10.1.0.0/16"}, ("10.1.0.0/16",), ["a"]),
        ({"podSubnet": "fd00::/56, 10.1.0.0/20"}, ("fd00::/56", "10.1.0.0/20"), ["a", "::a"]),
        ({"serviceSubnet": "fd00:96::/112"}, ("fd00:10:244::/56",), ["::a"]),
        ({"serviceSubnet": "fd00:96::/112,10.96.0.0/16"}, ("fd00:10:244::/56", "10.244.0.0/16"), ["a", "::a"]),
    ],
)
def test_pods_have_the_families_of_services(named: dict[str, str], pods: tuple[str, ...], families: list[str]) -> None:
    found = subnets.of(networking(**named))
    assert (found.pods, [*found.families_of(["a", "::a"])]) == (pods, families)


@pytest.mark.parametrize(
    ("named", "field", "reason"),
    [
        ({"podSubnet": "10.1.0.0/21"}, "podSubnet", "is too small for 256 machines: at most /20"),
        ({"podSubnet": "fd00::/113,10.1.0.0/16"}, "podSubnet", "is too small for 256 machines: at most /112"),
        ({"podSubnet": "10.1.0.0/16,10.2.0.0/16"}, "podSubnet", "has two ranges of the same family"),
        ({"podSubnet": "fd00::/56"}, "podSubnet", "has no range of IPv4, which Services have (networking.serviceSubnet)"),
        ({"serviceSubnet": "10.96.0.1/12"}, "serviceSubnet", "10.96.0.1/12 has host bits set"),
        ({"serviceSubnet": 7}, "serviceSubnet", "'7' does not appear"),
    ],
)
def test_ranges_that_a_cluster_of_machines_cannot_have_are_refused(named: dict[str, str], field: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        documents.require_valid(networking(**named))
    (error,) = caught.value.errors
    assert (str(error.path), reason in str(error)) == (f"networking.{field}", True)


def test_all_wrong_ranges_are_named_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        subnets.of(networking(podSubnet="fd00::/113", serviceSubnet="10.96.0.0/16"))
    assert [str(error.path) for error in caught.value.errors] == ["networking.podSubnet"] * 2
    with pytest.raises(ValidationError) as caught:
        subnets.of(networking(podSubnet="10.1.0.0/21", serviceSubnet="10.96.0.1/12"))
    assert [str(error.path) for error in caught.value.errors] == ["networking.serviceSubnet", "networking.podSubnet"]


def test_machines_keep_their_addresses_when_the_cluster_is_scaled() -> None:
    assert members.members(CLUSTER) == {"dev-control-plane": 1, "dev-worker-1": 51, "dev-worker-2": 52}
    assert members.addresses_of(CLUSTER.scaled(9), "dev-worker-2") == members.addresses_of(CLUSTER, "dev-worker-2") == ("172.30.4.62",)
    fewer = replace(SEVERAL, machines=(SEVERAL.machines[0], SEVERAL.machines[2]))
    assert members.members(SEVERAL) == members.members(fewer) | {"dev-control-plane-2": 2}


def test_an_unknown_machine_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        members.machine_of(ClusterPaths(tmp_path / "dev"), CLUSTER, "dev-worker-3")
    assert caught.value.remedy == "its machines are: dev-control-plane, dev-worker-1, dev-worker-2"


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (
            ["nameserver 192.0.2.1\nsearch  a.example b.example\n\n# end\nnameserver 192.0.2.2\n"],
            "192.0.2.1 192.0.2.2 search a.example b.example",
        ),
        (
            ["nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n", "nameserver 192.0.2.9\noptions rotate\n"],
            "192.0.2.9 options rotate",
        ),
        (["nameserver 192.0.2.9\nsearch . example.com\nsearch\n"], "192.0.2.9 search example.com"),
        (["nameserver 127.0.0.1\n", "nameserver ::1\n", "nameserver 192.0.2.9\n"], "192.0.2.9"),
        (["nameserver fe80::1%eth0\nnameserver fe80::1\nnameserver x;y\nnameserver 2001:DB8::53\n"], "2001:db8::53"),
        (["nameserver 169.254.169.254\ndomain example.com\n"], "169.254.169.254 domain example.com"),
        (["# none\nnameserver\nsearch example.com\n"], ""),
        ([], ""),
    ],
)
def test_machines_use_the_name_servers_of_the_host_that_they_can_reach(texts: list[str], found: str) -> None:
    text = resolvers.parse({str(number): text for number, text in enumerate(texts)}).text(ipv6=True)
    assert " ".join(text.replace("nameserver ", "").split()) == found
    assert text == "" or text.startswith("nameserver ")


def test_machines_without_ipv6_have_no_such_name_server() -> None:
    found = resolvers.parse({"": "nameserver 2001:db8::53\nnameserver 192.0.2.9\n"})
    assert found.text(ipv6=False) == "nameserver 192.0.2.9\n"
    assert resolvers.parse({"": "nameserver 2001:db8::53\nsearch example.com\n"}).text(ipv6=False) == ""


def test_only_sudo_names_another_owner() -> None:
    assert owner.caller({}) is None
    assert owner.caller({"SUDO_UID": "0"}) is None
    assert owner.caller({"SUDO_UID": "1; id"}) is None
    assert owner.caller({"SUDO_UID": "4294967294"}) is None


def test_a_user_finds_machines_that_were_made_with_sudo_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = owner.Owner(uid=12345, gid=12345, home=tmp_path / "home")
    own, default = tmp_path / "state" / "kubewright" / "clusters", user.clusters
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "geteuid", lambda: user.uid)
    monkeypatch.setattr(owner, "_user", lambda _: user)
    processes = replace(CLUSTER, kind=record.PROCESSES)
    for place, name, one in (
        (own, "mine", processes),
        (default, "theirs", processes),
        (default, "dev", CLUSTER),
        (default, "mine", CLUSTER),
    ):
        (place / name).mkdir(parents=True)
        named = replace(one, name=name, machines=(replace(FIRST, name=record.first_name(name)),))
        record.save(named, place / name / "cluster.json")
    assert [paths.root for paths in owner.visible()] == [own / "mine", default / "dev", default / "mine"]
    assert [owner.paths_of(name).root for name in ("mine", "theirs", "dev")] == [own / "mine", own / "theirs", default / "dev"]
    assert [paths.root for paths in owner.visible(str(own))] == [own / "mine"]
    assert owner.paths_of("dev", state_dir=str(own)).root == own / "dev"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can change the owner of a file")
def test_files_of_a_cluster_belong_to_its_owner(readable: Path) -> None:
    user = owner.Owner(uid=12345, gid=12345, home=readable / "home")
    user.home.mkdir()
    os.chown(user.home, user.uid, user.gid)
    paths = ClusterPaths(user.clusters / "dev")
    with owner.changing_as(user, paths, doing="a test"):
        assert os.geteuid() == 0
        with owner.acting_as(user):
            record.save(CLUSTER, paths.record)
    assert [path.lstat().st_uid for path in (user.home / ".local", paths.root, paths.record, paths.lock)] == [12345] * 4
    assert owner.of_cluster(paths) == owner.Owner(uid=12345, gid=12345, home=paths.root)


def test_a_cluster_of_processes_is_not_made_of_machines(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    paths.root.mkdir()
    assert up_options.machines_are_wanted(paths, UpOptions(machines=True))
    assert not up_options.machines_are_wanted(paths, UpOptions())
    with pytest.raises(UsageError, match="only clusters of machines have --publish, --mount, --cni and --registry-config"):
        up_options.machines_are_wanted(paths, UpOptions(registry_config="/etc/certs.d"))
    record.save(CLUSTER, paths.record)
    assert up_options.machines_are_wanted(paths, UpOptions())
    record.save(replace(CLUSTER, kind=record.PROCESSES), paths.record)
    assert not up_options.machines_are_wanted(paths, UpOptions())
    with pytest.raises(UsageError, match="consists of processes, not of machines"):
        up_options.machines_are_wanted(paths, UpOptions(machines=True))
    for options in (UpOptions(publish=(published.parse("80:30080"),)), UpOptions(mounts=mounts.parse_all(["/data:/mnt/data"]))):
        with pytest.raises(UsageError, match="only clusters of machines have --publish, --mount, --cni and --registry-config"):
            up_options.machines_are_wanted(paths, options)


ROOT = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
FITTING = {
    "/proc/self/status": "Name:\tpython\nCapEff:\t000001ffffffffff\n",
    "/proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids\n",
    "/proc/filesystems": "nodev\tsysfs\nnodev\toverlay\n",
    "/proc/self/mountinfo": ROOT,
    "/proc/self/uid_map": "         0          0 4294967295\n",
}


IN_CONTAINER = {
    "/sys/fs/cgroup/cgroup.type": "domain\n",
    "/sys/fs/cgroup/cgroup.procs": "1\n17\n",
    "/sys/fs/cgroup/cgroup.subtree_control": "\n",
    "/proc/1/comm": "sh\n",
}


HEADER = {"/usr/include/seccomp.h": "#ifndef _SECCOMP_H\n"}
NO_GO = Finding(text="runc has to be built, but go is not on PATH", remedy="install Go 1.26 or later (https://go.dev/dl)")


def host(files: dict[str, str] | None = None, *, without: frozenset[str] = frozenset(), **parts: Any) -> preflight.Subject:
    """A host that can run machines, but for the given parts."""
    read = {**FITTING, **(files or {})}
    wanted = {
        "user": 0,
        "system": "linux",
        "architecture": "x86_64",
        "python": "",
        "has_tree": True,
        "offers_tree": False,
        "describes_kernel": True,
        "builds_runc": False,
        "go": lambda: NO_GO if "go" in without else None,
        "free": lambda _: 4_000_000_000 if parts.get("has_tree") is False else 1_000_000_000,
    }
    return preflight.Subject(
        read=lambda path: read.get(path, ""), which=lambda name: None if name in without else f"/usr/bin/{name}", **{**wanted, **parts}
    )


@pytest.mark.parametrize(
    ("subject", "check", "remedy"),
    [
        (host(user=1000), "root", "with sudo"),
        (host(architecture="riscv64"), "system", "another host"),
        (host({"/proc/self/status": "CapEff:\t00000000a80425fb\n"}), "privileges", "--privileged"),
        (host({"/proc/self/uid_map": "         0       1000          1\n"}), "privileges", "--privileged"),
        (host({"/proc/self/mountinfo": ROOT + "23 22 0:5 /sys /proc/sys ro - proc proc rw\n"}), "privileges", "--privileged"),
        (host({"/proc/self/mountinfo": ROOT + "24 22 0:6 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"}), "privileges", "--privileged"),
        (
            host(has_tree=False, without=frozenset({"systemd-nspawn", "debootstrap", "zstd"})),
            "programs",
            "apt-get install systemd-container debootstrap",
        ),
        (host(has_tree=False, offers_tree=True, without=frozenset({"debootstrap", "zstd"})), "programs", "apt-get install zstd"),
        (host(has_tree=False, without=frozenset({"apt-get"})), "debian-tree", "Debian or Ubuntu"),
        (host(HEADER, builds_runc=True, without=frozenset({"gcc", "pkg-config"})), "runc", "apt-get install gcc libc6-dev pkg-config"),
        (host(builds_runc=True), "runc", "apt-get install libseccomp-dev"),
        (host(HEADER, builds_runc=True, without=frozenset({"go"})), "runc", "install Go 1.26"),
        (host(python="runs on Python 3.13"), "python", "make bundle"),
        (host({"/proc/mounts": ""}), "cgroups", "systemd=true"),
        (host({"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu pids\n"}), "cgroups", "cgroup_enable=memory"),
        (host(IN_CONTAINER), "cgroup-delegation", "> /sys/fs/cgroup/init/cgroup.procs"),
        (host({"/proc/filesystems": "nodev\tsysfs\n"}, without=frozenset({"modprobe"})), "overlay", "modprobe overlay"),
        (host({"/proc/self/mountinfo": "22 1 0:9 / / rw - overlay overlay rw\n"}), "storage", "XDG_CACHE_HOME"),
        (host(free=lambda _: 999_999_999), "storage", "du -xsh"),
        (host(free=lambda _: 3_999_999_999, has_tree=False), "storage", "du -xsh"),
    ],
)
def test_what_a_host_lacks_is_reported_with_its_remedy(subject: preflight.Subject, check: str, remedy: str) -> None:
    errors = preflight.examine(subject).errors
    assert {name for name, _ in errors} == {check}
    assert remedy in errors[0][1].remedy
    with pytest.raises(CheckFailed) as caught:
        preflight.require(subject)
    assert caught.value.exit_code == 4
    assert remedy in caught.value.detail


def test_a_suitable_host_passes_every_check() -> None:
    report = preflight.examine(host())
    assert (len(report.results), report.errors) == (len(preflight.CHECKS), [])
    # the last of several mounts at one path counts
    again = "23 22 0:6 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n24 23 0:6 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    assert preflight.examine(host({"/proc/self/mountinfo": ROOT + again})).errors == []
    # what makes the Debian tree is needed once, and not where a file has everything
    assert preflight.examine(host(without=frozenset({"debootstrap", "apt-get", "zstd"}))).errors == []
    assert preflight.examine(host(has_tree=False, offers_tree=True, without=frozenset({"debootstrap", "apt-get"}))).errors == []
    # and what builds runc only where nothing else provides it
    assert preflight.examine(host(without=frozenset({"gcc", "pkg-config", "go"}))).errors == []
    assert preflight.examine(host(HEADER, builds_runc=True)).errors == []


@pytest.mark.parametrize(
    ("environment", "name", "is_built"),
    [
        ({"KUBEWRIGHT_OFFLINE": "1"}, "runc", True),
        ({}, "runc", False),
        ({}, "wireguard-go", True),
        ({"KUBEWRIGHT_OFFLINE": "1", "KUBEWRIGHT_NO_BUILD": "1"}, "runc", False),
    ],
    ids=["no download", "a download", "released as source", "no build"],
)
def test_only_a_build_provides_what_is_missing_and_not_downloaded(
    tmp_path: Path, environment: dict[str, str], name: str, is_built: bool
) -> None:
    sources = binaries.sources_from({"KUBEWRIGHT_CACHE_DIR": str(tmp_path), **environment})
    assert binaries.only_built((name,), version=KUBERNETES, sources=sources) == ([name] if is_built else [])
    assert preflight.this_host(sources).builds_runc == (is_built and name == "runc")


def test_a_build_of_runc_needs_nothing_if_a_file_has_all_parts(tmp_path: Path) -> None:
    sources = binaries.sources_from({"KUBEWRIGHT_CACHE_DIR": str(tmp_path), "KUBEWRIGHT_OFFLINE": "1"}, directory=tmp_path)
    (tmp_path / f"machine-{KUBERNETES}-amd64.tar.zst").touch()
    assert not preflight.this_host(sources).builds_runc


def test_a_container_passes_if_its_processes_are_not_in_the_way_of_controllers() -> None:
    for change in ({"cgroup.procs": ""}, {"cgroup.subtree_control": "cpuset cpu io memory pids\n"}, {"cgroup.type": ""}):
        files = {f"/sys/fs/cgroup/{name}": text for name, text in change.items()}
        assert preflight.examine(host(IN_CONTAINER | files)).errors == []
    assert preflight.examine(host(IN_CONTAINER | {"/proc/1/comm": "systemd\n"})).errors == []


def test_a_host_without_a_readable_kernel_configuration_is_reported() -> None:
    report = preflight.examine(host(describes_kernel=False))
    assert report.errors == []
    assert [result.name for result in report.results if result.warnings] == ["kernel"]


def test_machines_see_the_configuration_and_the_modules_of_the_hosts_kernel(tmp_path: Path) -> None:
    def seen() -> dict[str, str]:
        return {place: str(path.relative_to(tmp_path)) for place, path in kernel.shared(root=tmp_path, release="6.1.0").items()}

    assert (seen(), kernel.configuration(root=tmp_path, release="6.1.0")) == ({}, None)
    files = ("usr/lib/modules/6.1.0/config", "boot/config-6.1.0", "proc/config.gz")
    for name in ("boot/config-6.0.0", *files[:2]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "lib").symlink_to("usr/lib")
    assert seen() == {"/lib/modules": "lib/modules", "/boot/config-6.1.0": "boot/config-6.1.0"}
    (tmp_path / files[1]).unlink()
    assert seen() == {"/lib/modules": "lib/modules", "/boot/config-6.1.0": files[0]}
    (tmp_path / "proc").mkdir()
    (tmp_path / files[2]).touch()
    assert seen() == {"/lib/modules": "lib/modules"}
    assert kernel.configuration(root=tmp_path, release="6.1.0") == tmp_path / files[2]


def test_cgroups_of_version_1_are_found() -> None:
    files = {
        "/proc/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
        "/proc/cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t1\t1\t1\ncpu\t2\t1\t1\nmemory\t3\t1\t0\npids\t4\t1\t1\n",
    }
    (error,) = preflight.examine(host(files)).errors
    assert "lack the controllers memory" in error[1].text


def test_states_of_nodes() -> None:
    def node(name: str, *conditions: dict[str, str]) -> dict[str, Any]:
        return {"metadata": {"name": name}, "status": {"conditions": list(conditions)}}

    nodes = [node("one", {"type": "Ready", "status": "True"}), node("two", {"type": "Ready", "status": "Unknown"}), node("three")]
    assert status.node_states(nodes) == {"one": "Ready", "two": "NotReady", "three": "NotReady"}
    # the Node of a machine that was stopped stays Ready for a while
    lease = {"metadata": {"name": "one"}, "spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}}
    for since, state in {"2026-01-01T00:00:09.999999Z": "Ready", "2026-01-01T00:00:10.000001Z": "NotReady"}.items():
        assert status.node_states(nodes, leases=[lease], since={"one": since})["one"] == state
    assert status.node_states(nodes, since={"one": "2026-01-01T00:00:09.999999Z"})["one"] == "NotReady"
    # that of a new machine has no Lease yet, and that of a paused one a new Lease, but no new report
    reporting = [node("one", {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:10Z"})]
    for since, state in {"2026-01-01T00:00:09.999999Z": "Ready", "2026-01-01T00:00:10.000000Z": "NotReady"}.items():
        assert status.node_states(reporting, since={"one": since})["one"] == state
    assert status.node_states(reporting, leases=[lease], since={"one": "2026-01-01T00:00:10.000000Z"})["one"] == "Ready"


@pytest.mark.parametrize(
    ("holder", "renewed", "released"),
    [
        ("dev-control-plane_0123", "2026-01-01T00:00:09.999999Z", True),
        ("dev-control-plane_0123", "2026-01-01T00:00:10.000001Z", False),
        ("dev-control-plane-2_0123", "2026-01-01T00:00:09.999999Z", False),
    ],
    ids=["its machine was stopped", "elected since", "its machine has been running"],
)
def test_leaders_that_ended_with_their_machines_lose_their_leases(holder: str, renewed: str, released: bool) -> None:
    kube = RecordingKube()
    up.release_leases(kube, started=["dev-control-plane"], since=SINCE)
    assert kube.writes == []  # nobody has been elected yet
    for name in ("kube-controller-manager", "kube-scheduler", "another"):
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
        metadata = {"name": name, "namespace": "kube-system"}
        kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
    up.release_leases(kube, started=["dev-control-plane"], since=SINCE)
    found = {lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in kube.list(LEASE, "kube-system")}
    left = "" if released else holder
    assert found == {"kube-controller-manager": left, "kube-scheduler": left, "another": holder}


def tar(path: Path, *, compressed: bool = False) -> Path:
    with tarfile.open(path, "w:gz" if compressed else "w") as made:
        made.addfile(tarfile.TarInfo("index.json"))
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_an_archive_is_passed_on_from_its_first_byte(tmp_path: Path, compressed: bool) -> None:
    path = tar(tmp_path / "app.tar", compressed=compressed)
    with images.archive(str(path), standard_input=io.BytesIO()) as file:
        assert file.read() == path.read_bytes()


@pytest.mark.parametrize("spooled", [False, True])
def test_an_archive_may_come_from_standard_input_or_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spooled: bool) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    content = tar(tmp_path / "app.tar").read_bytes()
    reading, writing = os.pipe()
    assert os.write(writing, content) == len(content)  # a pipe holds 64 KiB
    os.close(writing)
    for path in ("-", f"/dev/fd/{reading}"):
        with images.archive(path, standard_input=io.BytesIO(content), spool=tmp_path if spooled else None) as file:
            assert Path(f"/proc/self/fd/{file.fileno()}").read_bytes() == content
            assert Path(str(file.name)).is_file() == spooled
    os.close(reading)


@settings(max_examples=50)
@given(content=st.binary(max_size=600) | st.binary(max_size=200).map(lambda rest: b"\x1f\x8b\x08\0\0\0\0\0\0\0" + rest))
def test_anything_else_is_refused(content: bytes) -> None:
    assume(content[257:262] != b"ustar")
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        with pytest.raises(DocumentError, match="is not a tar archive"), images.archive(file.name, standard_input=io.BytesIO()):
            pass


def test_a_missing_archive_is_reported() -> None:
    with (
        pytest.raises(DocumentError, match="cannot read /nonexistent") as caught,
        images.archive("/nonexistent/app.tar", standard_input=io.BytesIO()),
    ):
        pass
    assert "`docker save IMAGE | kubewright local load -`" in caught.value.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can enter machines")
def test_logs_of_machines_that_do_not_run_or_exist_are_refused(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    paths.root.mkdir()
    record.save(CLUSTER, paths.record)
    with pytest.raises(HostError, match="machine dev-worker-2 does not run") as caught:
        list(clusters.log(paths, "kubelet", machine="dev-worker-2"))
    assert caught.value.remedy == "`kubewright local machine start dev-worker-2` starts it"
    with pytest.raises(UsageError, match='has no machine "dev-worker-3"'):
        list(clusters.log(paths, "kubelet", machine="dev-worker-3"))
    with pytest.raises(HostError, match='the daemon of cluster "dev" does not run'):
        list(clusters.log(paths, ""))


def test_any_machine_but_the_first_can_be_removed() -> None:
    fewer = removal.without(CLUSTER, "dev-worker-1")
    assert (fewer.workers, fewer.nodes, fewer.gaps) == (("dev-worker-2",), 1, (1,))
    shrunk = removal.without(SEVERAL, "dev-control-plane-2")
    assert ([machine.name for machine in shrunk.leaving], shrunk.settled().machines) == (["dev-control-plane-2"], (FIRST, THIRD))
    with pytest.raises(UsageError, match="is the first control plane") as caught:
        removal.without(ALONE, "dev-control-plane")
    assert caught.value.remedy == "`sudo kubewright down --name dev` removes the cluster"
    with pytest.raises(UsageError, match='has no machine "dev-worker-9"'):
        removal.without(CLUSTER, "dev-worker-9")


def test_the_next_worker_or_control_plane_can_be_added() -> None:
    assert machines.addition(CLUSTER) == machines.addition(CLUSTER, "dev-worker-3") == ("dev-worker-3", UpOptions(nodes=3))
    assert machines.addition(replace(CLUSTER, nodes=1, gaps=(1,)))[0] == "dev-worker-1"
    assert machines.addition(CLUSTER, "dev-control-plane-2") == ("dev-control-plane-2", UpOptions(control_planes=2))
    assert machines.addition(SEVERAL, "dev-control-plane-4")[1] == UpOptions(control_planes=4)
    further = [LocalMachineRecord(name=f"dev-control-plane-{number}", address="") for number in range(2, 8)]
    most = replace(CLUSTER, machines=(CLUSTER.machines[0], *further))
    with pytest.raises(UsageError, match='cluster "dev" has 7 control planes, the most that are possible'):
        machines.addition(most, "dev-control-plane-8")
    for name, said in (("dev-worker-2", 'has a machine "dev-worker-2"'), ("dev-worker-4", 'cannot add a machine "dev-worker-4"')):
        with pytest.raises(UsageError, match=said) as caught:
            machines.addition(CLUSTER, name)
        assert caught.value.remedy == "the next ones are dev-worker-3 and dev-control-plane-2"


def administrator(**user: object) -> str:
    """The administrator's kubeconfig of a machine, with further fields of its user."""
    credentials = EmbeddedCertificate(certificate_pem=b"certificate", key_pem=b"key")
    body: Any = kubeconfig_document(
        server="https://api.kubewright.internal:6443", cluster_name="dev", user="kubernetes-admin", credentials=credentials, ca_pem=b"ca"
    )
    body["users"][0]["user"] |= user
    return yaml.dump(body)


def test_the_kubeconfig_of_the_host_names_an_address() -> None:
    text = administrator()
    for address in ("172.30.4.11", "172.30.4.12"):
        text = endpoints.pointed(text, address)
        assert text == administrator().replace("api.kubewright.internal", address)


def test_the_kubeconfig_of_the_host_takes_only_certificates_from_a_machine() -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"}
    assert "/bin/false" not in endpoints.pointed(administrator(exec=program), "172.30.4.11")
    files = {"client-certificate": "/root/a.crt", "client-certificate-data": "", "client-key": "/root/a.key", "client-key-data": ""}
    with pytest.raises(CertificateError, match="has no embedded certificates"):
        endpoints.pointed(administrator(**files), "172.30.4.11")


@given(steps=st.lists(st.integers(0, 6) | st.integers(1, 6).map(lambda number: f"dev-worker-{number}"), max_size=8))
def test_workers_keep_their_names_while_others_are_added_and_removed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str]
) -> None:
    cluster = CLUSTER
    for step in steps:
        before = cluster.workers
        if isinstance(step, int):
            cluster = cluster.scaled(step)
            assert len(cluster.workers) == step
            assert set(before) <= set(cluster.workers) or set(cluster.workers) == set(before[:step])
        elif step in before:
            cluster = cluster.without(step)
            assert set(cluster.workers) == set(before) - {step}
    path = tmp_path_factory.mktemp("record") / "cluster.json"
    record.save(cluster, path)
    assert record.load(path) == cluster


@pytest.mark.parametrize("gaps", [[0], [2, 1], [9], ["1"], [True], 1])
def test_gaps_that_no_removal_has_left_are_refused(tmp_path: Path, gaps: object) -> None:
    path = tmp_path / "cluster.json"
    record.save(CLUSTER, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "gaps": gaps}))
    with pytest.raises(HostError, match="does not describe a cluster"):
        record.load(path)
