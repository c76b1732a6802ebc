"""Every row of the preflight tables: a good machine passes it, a machine that lacks exactly that does not."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from pathlib import PurePosixPath

import pytest
from preflight_kit import ADDRESSES, CLUSTER, GOOD, KERNEL_CONFIG, LAYOUT, OPTIONS, V1_OPTIONS, FakeHost, FakePrograms, FakeRuntime, subject

from kubewright.apis.kubeadm.types import Etcd, ExternalEtcd, Networking, NodeRegistration
from kubewright.apis.machine import Addresses
from kubewright.base.checks import Severity, run_checks
from kubewright.base.clock import FakeClock
from kubewright.base.errors import CheckFailed, PreflightFailed, RuntimeUnavailable
from kubewright.base.events import Checked, Line, RecordingReporter
from kubewright.base.records import replace
from kubewright.base.versions import Version
from kubewright.host.facts import MachineInfo
from kubewright.host.network.interfaces import PortOwner
from kubewright.host.states import Condition, ServiceState
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Response
from kubewright.lifecycle.steps import preflight
from kubewright.preflight import lists, machine, network
from kubewright.preflight.checks import Check

INIT = lists.init(CLUSTER, ADDRESSES, LAYOUT)
OWNER = PortOwner(user=0, pid=7, program="nc")


def found(host=None, checks=INIT, ignored=(), **changes: object):
    report = run_checks(checks, subject(host, **changes), ignored=ignored)
    return {(result.name, one.severity.value) for result in report.results for one in result.findings}


def without(path):
    return FakeHost(files={name: text for name, text in GOOD.items() if name != path})


def having(path, text):
    return FakeHost(files={**GOOD, path: text})


def test_a_good_machine_passes_every_check_in_the_order_of_kubeadm():
    report = run_checks(INIT, subject())
    assert [result.name for result in report.results] == [
        *("IsPrivilegedUser", "NumCPU", "Mem", "KubernetesVersion", "Firewalld", "Port-6443", "Port-10259", "Port-10257"),
        *(
            f"FileAvailable--etc-kubernetes-manifests-{name}.yaml"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
        ),
        *("HTTPProxy", "HTTPProxyCIDR", "CRI", "ContainerRuntimeVersion", "Swap"),
        *(
            "FileExisting-losetup",
            "FileExisting-mount",
            "FileExisting-cp",
            "SystemVerification",
            "Hostname",
            "KubeletVersion",
            "Service-kubelet",
        ),
        *("Port-10250", "FileContent--proc-sys-net-ipv4-ip_forward", "Port-2379", "Port-2380", "DirAvailable--var-lib-etcd"),
    ]
    assert [one for result in report.results for one in result.findings] == []
    report.require_passed()


BAD = {
    "one processor": (FakeHost(machine=MachineInfo(cores=1, memory=2 * 1024**3, kernel="6.1.0")), "NumCPU", "error"),
    "little memory": (FakeHost(machine=MachineInfo(cores=2, memory=1699 * 1024**2, kernel="6.1.0")), "Mem", "error"),
    "firewall": (
        FakeHost(services={"firewalld": ServiceState(running=True), "kubelet": ServiceState(running=False)}),
        "Firewalld",
        "warning",
    ),
    "runtime not ready": (
        FakeHost(runtime=FakeRuntime(conditions=(Condition(type="RuntimeReady", status=False, reason="Broken", message="no runc"),))),
        "CRI",
        "error",
    ),
    "old runtime": (FakeHost(runtime=FakeRuntime(driver=None)), "ContainerRuntimeVersion", "warning"),
    "runtime down": (FakeHost(runtime=FakeRuntime(error=RuntimeUnavailable("nobody answers"))), "CRI", "error"),
    "swap": (having("/proc/swaps", "Filename\n/dev/sda2 partition 1 0 -2\n"), "Swap", "warning"),
    "no losetup": (
        FakeHost(programs=FakePrograms({"kubelet": "Kubernetes v1.36.3", "mount": "", "cp": ""})),
        "FileExisting-losetup",
        "error",
    ),
    "no mount": (
        FakeHost(programs=FakePrograms({"kubelet": "Kubernetes v1.36.3", "losetup": "", "cp": ""})),
        "FileExisting-mount",
        "error",
    ),
    "no cp": (FakeHost(programs=FakePrograms({"kubelet": "Kubernetes v1.36.3", "losetup": "", "mount": ""})), "FileExisting-cp", "error"),
    "old kernel": (
        FakeHost(files={**GOOD, "/boot/config-4.19.0": KERNEL_CONFIG}, machine=MachineInfo(cores=2, memory=2 * 1024**3, kernel="4.19.0")),
        "SystemVerification",
        "warning",
    ),
    "no kernel configuration": (without("/boot/config-6.1.0"), "SystemVerification", "error"),
    "a controller missing": (having("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io hugetlb pids"), "SystemVerification", "error"),
    "an optional controller missing": (
        having("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids"),
        "SystemVerification",
        "warning",
    ),
    "no kubelet": (FakeHost(programs=FakePrograms({"losetup": "", "mount": "", "cp": ""})), "KubeletVersion", "error"),
    "kubelet says nothing": (
        FakeHost(programs=FakePrograms({"kubelet": "?", "losetup": "", "mount": "", "cp": ""})),
        "KubeletVersion",
        "error",
    ),
    "kubelet too old": (
        FakeHost(programs=FakePrograms({"kubelet": "Kubernetes v1.32.9", "losetup": "", "mount": "", "cp": ""})),
        "KubeletVersion",
        "error",
    ),
    "kubelet too new": (
        FakeHost(programs=FakePrograms({"kubelet": "Kubernetes v1.37.0", "losetup": "", "mount": "", "cp": ""})),
        "KubeletVersion",
        "error",
    ),
    "no kubelet service": (FakeHost(services={}), "Service-kubelet", "warning"),
    "kubelet not enabled": (FakeHost(services={"kubelet": ServiceState(running=False, enabled=False)}), "Service-kubelet", "warning"),
    "no forwarding": (having("/proc/sys/net/ipv4/ip_forward", "0\n"), "FileContent--proc-sys-net-ipv4-ip_forward", "error"),
    "no IPv4": (without("/proc/sys/net/ipv4/ip_forward"), "FileContent--proc-sys-net-ipv4-ip_forward", "error"),
    "etcd data": (having("/var/lib/etcd/member", ""), "DirAvailable--var-lib-etcd", "error"),
    **{
        f"{name} is there": (
            having(f"/etc/kubernetes/manifests/{name}.yaml", ""),
            f"FileAvailable--etc-kubernetes-manifests-{name}.yaml",
            "error",
        )
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
    },
}


@pytest.mark.parametrize("case", BAD)
def test_exactly_the_missing_requirement_is_reported(case):
    host, name, severity = BAD[case]
    assert found(host) == {(name, severity)}


@pytest.mark.parametrize("port", [6443, 10259, 10257, 10250, 2379, 2380])
def test_a_port_in_use_is_reported_with_its_owner(port):
    host = FakeHost()
    host.network.taken = {port: OWNER}
    [result] = [one for one in run_checks(INIT, subject(host)).results if one.findings]
    assert (result.name, result.findings[0].text) == (f"Port-{port}", f"Port {port} is in use by nc (pid 7)")
    assert "kill 7" in result.findings[0].remedy


@pytest.mark.parametrize(
    ("port", "program"),
    [
        *(
            (6443, "kube-apiserver"),
            (10259, "kube-scheduler"),
            (10257, "kube-controller"),
            (10250, "kubelet"),
            (2379, "etcd"),
            (2380, "etcd"),
        ),
    ],
)
def test_files_of_an_earlier_run_do_not_fail_checks(port, program):
    files = {f"/etc/kubernetes/manifests/{name}.yaml": "" for name in lists.STATIC_PODS}
    host = FakeHost(files={**GOOD, **files, "/var/lib/etcd/member": ""})
    host.network.taken = {port: PortOwner(user=0, pid=7, program=program)}
    checks = lists.init(CLUSTER, ADDRESSES, LAYOUT, resumed=True)
    assert found(host, checks=checks) == set()
    host.network.taken = {port: OWNER}
    assert found(host, checks=checks) == {(f"Port-{port}", "error")}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_kernel_option_is_needed(option):
    host = having("/boot/config-6.1.0", KERNEL_CONFIG.replace(f"CONFIG_{option}=y", f"# CONFIG_{option} is not set"))
    assert found(host) == {("SystemVerification", "error")}


@pytest.mark.parametrize("option", ["IP_NF_TARGET_REDIRECT=m", "NETFILTER_XT_TARGET_REDIRECT=m"])
def test_one_of_two_kernel_options_is_enough(option):
    text = KERNEL_CONFIG.replace("CONFIG_NETFILTER_XT_TARGET_REDIRECT=y", f"CONFIG_{option}")
    assert found(having("/boot/config-6.1.0", text)) == set()


def v1(text=None, kubelet="Kubernetes v1.36.3"):
    rows = "".join(
        f"{name}\t1\t1\t1\n" for name in ("cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids", "hugetlb", "blkio")
    )
    files = {name: content for name, content in GOOD.items() if not name.startswith("/sys/fs")}
    config = KERNEL_CONFIG + "".join(f"CONFIG_{name}=y\n" for name in V1_OPTIONS)
    host = FakeHost(files={**files, "/proc/cgroups": text or "#subsys_name\n" + rows, "/boot/config-6.1.0": config})
    host.programs.installed["kubelet"] = kubelet
    return host


def test_cgroup_v1_is_refused_only_for_recent_kubelets():
    assert found(v1()) == {("SystemVerification", "error")}
    assert found(v1(kubelet="Kubernetes v1.34.1")) == {("SystemVerification", "warning")}


def test_cgroup_v1_requires_its_own_options_and_controllers():
    host = v1(text="cpu\t1\t1\t1\ncpuset\t1\t1\t0\n", kubelet="Kubernetes v1.34.1")
    [result] = [one for one in run_checks(INIT, subject(host)).results if one.findings]
    assert result.findings[0].text == "missing required cgroups: cpuacct cpuset devices freezer memory pids"
    for option in V1_OPTIONS:
        host = v1(kubelet="Kubernetes v1.34.1")
        host.files["/boot/config-6.1.0"] = host.files["/boot/config-6.1.0"].replace(f"CONFIG_{option}=y\n", "")
        assert ("SystemVerification", "error") in found(host)


def test_cgroup_v1_is_refused_for_the_kubelet_that_follows_an_upgrade():
    for kubelet, severity in {"v1.33.1": "warning", "v1.34.1": "error", "v1.35.0": "error"}.items():
        assert found(v1(kubelet=f"Kubernetes {kubelet}"), checks=lists.UPGRADE) == {("SystemVerification", severity)}


@pytest.mark.parametrize("ignored", [[], ["SystemVerification"]])
def test_a_failed_verification_reports_all_that_it_looked_at(ignored):
    config = KERNEL_CONFIG.replace("CONFIG_NET_NS=y", "CONFIG_NET_NS=n").replace("CONFIG_EXT4_FS=y", "CONFIG_EXT4_FS=m")
    reporter = RecordingReporter()
    report = run_checks(INIT, subject(having("/boot/config-6.1.0", config + "CONFIG_AUFS_FS=n\n")), ignored=ignored)
    with contextlib.nullcontext() if ignored else pytest.raises(PreflightFailed, match="missing required kernel option: CONFIG_NET_NS"):
        preflight.require_passed(report, reporter=reporter)
    [text] = [event.text for event in reporter.events if isinstance(event, Line)]
    lines = text.splitlines()
    assert lines[:4] == [
        "The system verification failed. Printing the output from the verification:",
        "KERNEL_VERSION: 6.1.0",
        "CONFIG_NAMESPACES: enabled",
        "CONFIG_NET_NS: disabled",
    ]
    assert {"CONFIG_EXT4_FS: enabled (as module)", "CONFIG_OVERLAY_FS: not set - Required for overlayfs."} < {*lines}
    assert {"CONFIG_AUFS_FS: disabled - Required for aufs.", "OS: Linux", "CGROUPS_DEVICES: enabled", "CGROUPS_IO: enabled"} < {*lines}
    assert len(lines) == 2 + 17 + 7 + 1 + 6 + 2


def test_a_verification_that_only_warns_has_no_report():
    host = having("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids")
    reporter = RecordingReporter()
    preflight.require_passed(run_checks(INIT, subject(host)), reporter=reporter)
    assert [type(event) for event in reporter.events] == [Checked]


def test_a_compressed_kernel_configuration_is_read_and_a_broken_one_reported():
    import gzip

    host = without("/boot/config-6.1.0")
    host.files["/proc/config.gz"] = gzip.compress(KERNEL_CONFIG.encode()).decode("latin-1")
    assert found(host) == set()
    host.files["/proc/config.gz"] = "no gzip"
    assert found(host) == {("SystemVerification", "error")}


def test_proxies_for_cluster_addresses_give_a_warning():
    environment = {"HTTPS_PROXY": "http://user:secret@proxy.test:3128", "NO_PROXY": "192.0.2.0/24"}
    report = run_checks(INIT, subject(FakeHost(proxies=environment)))
    told = [(result.name, one.severity, one.text) for result in report.results for one in result.findings]
    assert [row[:2] for row in told] == [("HTTPProxyCIDR", Severity.WARNING)]
    assert "proxy.test" in told[0][2]
    assert "secret" not in told[0][2]
    assert found(FakeHost(proxies={"HTTPS_PROXY": "http://proxy.test", "NO_PROXY": "10.96.0.0/12"})) == {("HTTPProxy", "warning")}


def test_a_proxy_of_another_kind_gives_the_same_warnings():
    report = run_checks(INIT, subject(FakeHost(proxies={"HTTPS_PROXY": "socks5://user:canary@proxy.test:1"})))
    told = [(result.name, one.severity, one.text) for result in report.results for one in result.findings if "HTTPProxy" in result.name]
    assert [row[:2] for row in told] == [("HTTPProxy", Severity.WARNING), ("HTTPProxyCIDR", Severity.WARNING)]
    assert all("uses a proxy that kubewright does not support" in row[2] and "canary" not in row[2] for row in told)


def test_an_unresolvable_name_gives_a_warning():
    def fail(_):
        raise OSError

    names = found(checks=[machine.hostname(fail)], node=NodeRegistration(name="node1"))
    assert names == {("Hostname", "warning")}
    report = run_checks([machine.hostname(lambda _: None)], subject(node=NodeRegistration(name="-x-")))
    assert [len(result.findings) for result in report.results] == [1]


def test_a_later_minor_release_gives_a_warning():
    later = replace(CLUSTER, kubernetes_version="v1.37.0")
    host = FakeHost(programs=FakePrograms({"kubelet": "Kubernetes v1.37.0", "losetup": "", "mount": "", "cp": ""}))
    assert found(host, cluster=later) == {("KubernetesVersion", "warning")}


def test_without_root_nothing_else_is_checked():
    report = run_checks(INIT, subject(FakeHost(services={}), user=1000))
    assert [result.name for result in report.results] == ["IsPrivilegedUser"]
    with pytest.raises(CheckFailed, match="preflight checks failed"):
        report.require_passed()
    assert len(run_checks(INIT, subject(user=1000), ignored=["isprivilegeduser"]).results) == len(INIT)


@pytest.mark.parametrize("ignored", [["SWAP", "numcpu"], ["all"], ["NumCPU"]])
def test_ignored_checks_still_run_and_their_errors_become_warnings(ignored):
    host = FakeHost(machine=MachineInfo(cores=1, memory=2 * 1024**3, kernel="6.1.0"))
    report = run_checks(INIT, subject(host), ignored=ignored)
    report.require_passed()
    [result] = [one for one in report.results if one.findings]
    assert (result.name, result.ignored, len(result.warnings), len(result.errors)) == ("NumCPU", True, 1, 0)


def test_every_error_is_reported_at_once_with_its_hint():
    host = FakeHost(machine=MachineInfo(cores=1, memory=1, kernel="6.1.0"))
    with pytest.raises(CheckFailed) as caught:
        run_checks(INIT, subject(host)).require_passed()
    assert [line.split("]")[0] for line in caught.value.detail.splitlines()] == ["[ERROR NumCPU", "[ERROR Mem"]
    assert "more processors" in caught.value.detail
    assert "--ignore-preflight-errors" in caught.value.remedy


def test_a_report_has_a_json_form():
    report = run_checks(INIT, subject(FakeHost(services={})))
    rows = json.loads(json.dumps([result.as_map() for result in report.results]))
    assert len(rows) == len(INIT)
    [row] = [row for row in rows if row["findings"]]
    assert (row["name"], row["passed"], row["findings"][0]["severity"]) == ("Service-kubelet", True, "warning")


def test_both_families_are_checked_if_the_cluster_has_both():
    both = replace(CLUSTER, networking=Networking(service_subnet="10.96.0.0/12,fd00::/108", pod_subnet="10.1.0.0/16"))
    names = [check.name for check in lists.init(both, ADDRESSES, LAYOUT)]
    assert [name for name in names if name.startswith("FileContent")] == [
        "FileContent--proc-sys-net-ipv4-ip_forward",
        "FileContent--proc-sys-net-ipv6-conf-default-forwarding",
    ]
    assert names.count("HTTPProxyCIDR") == 3
    six = replace(CLUSTER, networking=Networking(service_subnet="fd00::/108"))
    names = [check.name for check in lists.init(six, Addresses.of_machine("2001:db8::1"), LAYOUT)]
    assert [name for name in names if name.startswith("FileContent")] == ["FileContent--proc-sys-net-ipv6-conf-default-forwarding"]


def test_a_joining_worker_has_fewer_checks():
    checks = lists.join(
        ADDRESSES, LAYOUT, control_plane=False, ca_path=PurePosixPath("/etc/kubernetes/pki/ca.crt"), endpoint_host="192.0.2.1"
    )
    assert [check.name for check in checks] == [
        *("IsPrivilegedUser", "FileAvailable--etc-kubernetes-kubelet.conf", "FileAvailable--etc-kubernetes-bootstrap-kubelet.conf"),
        *("CRI", "ContainerRuntimeVersion", "Swap", "FileExisting-losetup", "FileExisting-mount", "FileExisting-cp", "SystemVerification"),
        *("Hostname", "KubeletVersion", "Service-kubelet", "Port-10250", "FileAvailable--etc-kubernetes-pki-ca.crt", "HTTPProxy"),
        "FileContent--proc-sys-net-ipv4-ip_forward",
    ]
    assert found(checks=checks, cluster=None) == set()
    by_name = lists.join(ADDRESSES, LAYOUT, control_plane=False, ca_path=PurePosixPath("/x"), endpoint_host="cluster.test")
    assert not any(check.name.startswith("FileContent") for check in by_name)
    by_file = lists.join(ADDRESSES, LAYOUT, control_plane=True, ca_path=PurePosixPath("/x"))
    assert not any(check.name.startswith(("HTTPProxy", "FileAvailable--x")) for check in by_file)


def test_a_machine_that_joins_through_a_hub_is_checked_except_for_its_kubelet():
    checks = lists.hub_join(ADDRESSES)
    names = [check.name for check in checks]
    left_out = {"KubeletVersion", "Service-kubelet"}
    assert names == ["IsPrivilegedUser", *(check.name for check in lists.common(ADDRESSES) if check.name not in left_out)]
    assert found(checks=checks, cluster=None) == set()
    assert found(v1(), checks=checks, cluster=None) == set(), "its configuration is not known yet"


SWAPPING = "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n"


@pytest.mark.parametrize(
    ("configuration", "version", "errors"),
    [
        ({}, "v1.36.3", {"SystemVerification", "Swap"}),
        ({"failCgroupV1": True, "failSwapOn": True}, "v1.35.0", {"SystemVerification", "Swap"}),
        ({}, "v1.34.9", {"Swap"}),
        ({"failCgroupV1": False}, "v1.36.3", {"Swap"}),
        ({"failSwapOn": False}, "v1.36.3", {"SystemVerification"}),
        ({"failCgroupV1": False, "failSwapOn": False}, "v1.36.3", set()),
    ],
)
def test_a_machine_must_support_the_kubelet_that_it_gets(configuration, version, errors):
    checks = lists.given_kubelet(configuration, Version.parse(version))
    old = v1()
    old.files["/proc/swaps"] = SWAPPING
    assert found(old, checks=checks, cluster=None) == {(name, "error") for name in errors}
    assert found(checks=checks, cluster=None) == set()


EXTERNAL = ExternalEtcd(
    http_endpoints=["https://192.0.2.5:2379"], endpoints=["https://192.0.2.5:2379"], ca_file="/ca", cert_file="/crt", key_file="/key"
)


def test_external_etcd_is_checked_for_its_files():
    external = replace(CLUSTER, etcd=Etcd(external=EXTERNAL))
    names = [check.name for check in lists.init(external, ADDRESSES, LAYOUT)]
    assert names[-4:] == ["ExternalEtcdVersion", *["ExternalEtcdClientCertificates"] * 3]
    assert not any(name.startswith(("Port-23", "DirAvailable")) for name in names)
    joined = lists.control_plane_join(external, ADDRESSES, LAYOUT, has_certificate_key=True)
    assert not any(check.name.startswith("ExternalEtcd") for check in joined)
    [_, *files] = [check for check in lists.init(external, ADDRESSES, LAYOUT) if check.name.startswith("ExternalEtcd")]
    assert found(checks=files) == {("ExternalEtcdClientCertificates", "error")}


@pytest.mark.parametrize(
    ("answers", "expected", "slept"),
    [
        ([Response(status=200, headers={}, body=b'{"etcdserver":"3.6.8"}')], 0, 0),
        ([Response(status=200, headers={}, body=b'{"etcdserver":"3.5.23"}')], 1, 0),
        ([Response(status=200, headers={}, body=b"{}")], 1, 0),
        ([Response(status=200, headers={}, body=b"<html>")], 1, 0),
        ([Response(status=403, headers={}, body=b"")], 1, 0),
        ([Response(status=503, headers={}, body=b"")] * 3 + [Response(status=200, headers={}, body=b'{"etcdserver":"3.5.24"}')], 0, 15),
        ([Response(status=503, headers={}, body=b"")] * 4, 1, 15),
        ([NoAnswer("x", reason=Reason.REFUSED)] * 4, 1, 15),
    ],
)
def test_external_etcd_is_asked_for_its_version_four_times(answers, expected, slept):
    left, clock = list(answers), FakeClock()

    def ask(endpoint, external, _):
        assert (endpoint, external) == ("https://192.0.2.5:2379", EXTERNAL)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    [result] = run_checks([network.external_version(EXTERNAL, ask=ask, clock=clock)], subject()).results
    assert (len(result.findings), clock.monotonic(), left) == (expected, slept, [])


class EtcdVersion(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"etcdserver":"3.6.8","etcdcluster":"3.6.0"}'
        self.send_response(200 if self.path == "/version" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object):
        pass


@pytest.fixture
def plain_etcd():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), EtcdVersion) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("scheme", "problems"), [("http", 0), ("HTTP", 0), ("https", 1)])
def test_external_etcd_without_a_ca_is_checked_over_http_or_with_system_trust(plain_etcd, scheme, problems):
    external = ExternalEtcd(endpoints=[f"{scheme}://{plain_etcd}"])
    [result] = run_checks([network.external_version(external, clock=FakeClock())], subject()).results
    assert ["the TLS handshake failed" in one.text for one in result.findings] == [True] * problems


def test_a_check_that_cannot_run_is_an_error():
    def broken(_):
        raise RuntimeUnavailable("nobody answers", remedy="start it")

    report = run_checks([Check(name="One", find=broken), Check(name="Two", find=lambda _: ())], subject())
    assert [(result.name, len(result.errors)) for result in report.results] == [("One", 1), ("Two", 0)]
    assert report.results[0].errors[0].remedy == "start it"
