"""Warnings about arguments that a user gives to components."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_cases import HOST, places

from kubewright.apis.kubeadm import removed
from kubewright.apis.kubeadm.arguments import Given, of_control_plane
from kubewright.apis.kubeadm.loading import load_init
from kubewright.apis.kubeadm.overrides import with_attribute
from kubewright.apis.kubeadm.types import Arg, HostPathMount
from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.base.errors import HostError
from kubewright.host.real import RealHost
from kubewright.manifests import extra_arguments
from kubewright.manifests.extra_arguments import Surroundings
from kubewright.manifests.static_pods import COMPONENTS

LINES = ("1.35", "1.36", "1.37")
CLUSTER = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"


def said(fields, *, version="v1.36.3", there=()):
    """Return the warnings for a ClusterConfiguration (and an InitConfiguration after `---`); `there` are the files of the host."""
    text = CLUSTER + (f"kubernetesVersion: {version}\n" if "kubernetesVersion" not in fields else "") + fields
    configuration = load_init(yaml.load_all(text), detected=HOST).configuration
    around = Surroundings(configuration=configuration, layout=places(configuration)[0], look=lambda: HOST, exists=set(there).__contains__)
    return extra_arguments.warnings(of_control_plane(configuration), around)


def api_server(name, value, more=""):
    return f"apiServer:\n  extraArgs: [{{name: {name}, value: '{value}'}}]\n{more}"


def volume(host, path, *, read_only="true", kind="''"):
    return f"  extraVolumes: [{{name: audit, hostPath: {host}, mountPath: {path}, readOnly: {read_only}, pathType: {kind}}}]\n"


def test_a_default_configuration_gives_no_warnings():
    assert said("") == []


def test_an_unknown_flag_gives_a_warning_with_a_suggestion():
    assert said(api_server("audit-log-pth", "-")) == [
        "apiServer.extraArgs: kube-apiserver 1.36 has no flag --audit-log-pth and does not start with it; did you mean --audit-log-path?"
    ]


def test_a_flag_with_leading_hyphens_gives_a_warning():
    found = said("scheduler:\n  extraArgs: [{name: --leader-elect, value: 'true'}]\n")
    assert found == [
        "scheduler.extraArgs: kube-scheduler 1.36 has no flag ----leader-elect and does not start with it; did you mean --leader-elect?"
    ]


def test_nothing_is_suggested_if_nothing_is_similar():
    assert said(api_server("zzzz", "1")) == ["apiServer.extraArgs: kube-apiserver 1.36 has no flag --zzzz and does not start with it"]


def test_kubernetes_components_take_underscores_and_etcd_does_not():
    assert said("controllerManager:\n  extraArgs: [{name: leader_elect, value: 'true'}]\n") == []
    found = said("etcd:\n  local:\n    extraArgs: [{name: snapshot_count, value: '1'}]\n")
    assert found == [
        "etcd.local.extraArgs: etcd 3.6 has no flag --snapshot_count and does not start with it; did you mean --snapshot-count?"
    ]


def test_a_deprecated_flag_gives_a_warning_in_the_words_of_the_component():
    assert said(api_server("default-watch-cache-size", "10")) == [
        (
            "apiServer.extraArgs: --default-watch-cache-size of kube-apiserver 1.36 is deprecated: "
            "watch caches are sized automatically and this flag will be removed in a future version"
        )
    ]
    found = said("etcd:\n  local:\n    extraArgs: [{name: experimental-compaction-batch-limit, value: '1'}]\n")
    assert found == [
        (
            "etcd.local.extraArgs: --experimental-compaction-batch-limit of etcd 3.6 is deprecated: "
            "Deprecated in v3.6 and will be decommissioned in v3.7. Use '--compaction-batch-limit' instead."
        )
    ]


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("profiling", ("false", "T", "1"), "no"),
        ("request-timeout", ("1m", "1h0m0.5s", "0"), "60"),
        ("max-requests-inflight", ("400", "0x10", "-1"), "4e2"),
        ("goaway-chance", ("0.001", "1e-3"), "little"),
        ("bind-address", ("0.0.0.0", "::"), "localhost"),
    ],
)
def test_a_value_of_the_wrong_type_gives_a_warning(name, right, wrong):
    assert [said(api_server(name, value)) for value in right] == [[]] * len(right)
    (found,) = said(api_server(name, wrong))
    assert re.fullmatch(rf'apiServer.extraArgs: kube-apiserver needs .+ for --{name}, not "{wrong}", and does not start with it', found)


def component(section, arguments):
    return f"{section}:\n  extraArgs: [{', '.join(f'{{name: {name}, value: {value!r}}}' for name, value in arguments)}]\n"


MODE, PLUGINS, RANGE = "authorization-mode", "enable-admission-plugins", "cluster-cidr"
NO_START = "and does not start with it"
ONE_RANGE = "kube-controller-manager needs one CIDR such as 10.244.0.0/16, or one of each family"
VALUES = {
    "the default modes": ("apiServer", [(MODE, "Node,RBAC")], []),
    "an open API server": (
        "apiServer",
        [(MODE, "AlwaysAllow")],
        ["the default of --authorization-mode is Node,RBAC; AlwaysAllow is used: everyone may do everything"],
    ),
    "another order": ("apiServer", [(MODE, "RBAC,Node")], ["the default of --authorization-mode is Node,RBAC; RBAC,Node is used"]),
    "an unknown mode": (
        "apiServer",
        [(MODE, "Node,RBAK")],
        [
            f'kube-apiserver 1.36 has no authorization mode "RBAK" {NO_START} (--authorization-mode); did you mean "RBAC"?',
            "the default of --authorization-mode is Node,RBAC; Node is used: without RBAC, the permissions that init grants to nodes and administrators have no effect",
        ],
    ),
    "a mode twice": (
        "apiServer",
        [(MODE, "Node,RBAC"), (MODE, "Node")],
        [
            f"kube-apiserver accepts each --authorization-mode once, not Node 2 times, {NO_START}",
            "the default of --authorization-mode is Node,RBAC; Node,RBAC,Node is used",
        ],
    ),
    "no mode": (
        "apiServer",
        [(MODE, "")],
        ["--authorization-mode is empty, which kube-apiserver treats as AlwaysAllow: everyone may do everything"],
    ),
    "a mode without its file": (
        "apiServer",
        [(MODE, "Node,RBAC,ABAC")],
        [
            "kube-apiserver needs --authorization-policy-file for the mode ABAC, and does not start without it",
            "the default of --authorization-mode is Node,RBAC; Node,RBAC,ABAC is used",
        ],
    ),
    "a file without its mode": (
        "apiServer",
        [("authorization-webhook-config-file", "hook.yaml")],
        [
            (
                f"kube-apiserver accepts --authorization-webhook-config-file only with the mode Webhook, {NO_START};"
                " add it to --authorization-mode"
            ),
        ],
    ),
    "modes beside a configuration": (
        "apiServer",
        [(MODE, "Node,RBAC"), ("authorization-config", "authz.yaml")],
        ["kube-apiserver takes --authorization-config or --authorization-mode, not both, and does not start with both"],
    ),
    "known plug-ins": ("apiServer", [(PLUGINS, "NodeRestriction,PodResizeValidator,"), ("disable_admission_plugins", "Priority")], []),
    "unknown plug-ins": (
        "apiServer",
        [(PLUGINS, "NodeRestriktion"), ("disable-admission-plugins", "PodSecurityPolicy")],
        [
            (
                f'kube-apiserver 1.36 has no admission plug-in "NodeRestriktion" {NO_START} (--enable-admission-plugins);'
                ' did you mean "NodeRestriction"?'
            ),
            (
                f'kube-apiserver 1.36 has no admission plug-in "PodSecurityPolicy" {NO_START} (--disable-admission-plugins);'
                ' did you mean "PodSecurity"?'
            ),
        ],
    ),
    "a plug-in on both sides": (
        "apiServer",
        [(PLUGINS, "Priority"), ("disable-admission-plugins", "Priority")],
        ["Priority cannot be enabled and disabled: kube-apiserver does not start with it"],
    ),
    "ranges of pods": ("controllerManager", [(RANGE, "10.244.0.0/16,fd00::/48")], []),
    "a range of nonsense": ("controllerManager", [(RANGE, "nonsense")], [f'--cluster-cidr: "nonsense" is not a CIDR; {ONE_RANGE}']),
    "an address": ("controllerManager", [(RANGE, "10.244.0.0")], [f'--cluster-cidr: "10.244.0.0" is not a CIDR; {ONE_RANGE}']),
    "two ranges of a family": (
        "controllerManager",
        [(RANGE, "10.1.0.0/16,10.2.0.0/16")],
        [
            (
                "--cluster-cidr: 10.1.0.0/16,10.2.0.0/16 has several ranges of one family;"
                " kube-controller-manager needs one CIDR, or one of each family"
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_that_components_refuse_give_a_warning(name):
    section, arguments, expected = VALUES[name]
    assert said(component(section, arguments)) == [f"{section}.extraArgs: {text}" for text in expected]


def test_an_unmounted_file_gives_a_warning():
    assert said(api_server("audit-policy-file", "/srv/audit.yaml"), there=["/srv/audit.yaml"]) == [
        (
            "apiServer.extraArgs: --audit-policy-file: /srv/audit.yaml is not in kube-apiserver's static pod, which mounts no directory above it; "
            "add its directory to extraVolumes"
        )
    ]


def test_patches_may_mount_unmounted_files():
    init = "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\npatches: {directory: /srv/patches}\n"
    assert said(api_server("audit-policy-file", "/srv/audit.yaml") + init) == []
    assert len(said(api_server("audit-policy-file", "/etc/kubernetes/pki/none.yaml") + init)) == 1


def test_etcd_cannot_be_given_volumes():
    (found,) = said("etcd:\n  local:\n    extraArgs: [{name: wal-dir, value: /srv/wal}]\n")
    assert found.endswith(
        "/srv/wal is not in etcd's static pod, which mounts no directory above it; mount it with a patch: etcd has no extraVolumes"
    )
    assert said("etcd:\n  local:\n    extraArgs: [{name: wal-dir, value: /var/lib/etcd/wal}]\n") == []


def test_a_missing_file_gives_a_warning_with_its_host_path():
    fields = api_server("audit-policy-file", "/etc/audit/policy.yaml", volume("/srv/audit", "/etc/audit/"))
    assert said(fields, there=["/srv/audit/policy.yaml"]) == []
    assert said(fields, there=["/etc/audit/policy.yaml"]) == [
        (
            "apiServer.extraArgs: --audit-policy-file: /srv/audit/policy.yaml does not exist on this machine, "
            "which kube-apiserver would see as /etc/audit/policy.yaml"
        )
    ]


def test_a_mounted_file_created_by_the_kubelet_need_not_exist():
    fields = api_server("audit-policy-file", "/a/p.yaml", volume("/a/p.yaml", "/a/p.yaml", kind="FileOrCreate"))
    assert said(fields) == []
    assert len(said(fields.replace("FileOrCreate", "File"))) == 1


def test_files_created_by_init_need_not_exist():
    assert said(api_server("tls-cert-file", "/etc/kubernetes/pki/apiserver.crt")) == []
    assert said(f"certificatesDir: /srv/pki\n{api_server('client-ca-file', '/srv/pki/front-proxy-ca.crt')}") == []
    assert len(said(api_server("tls-cert-file", "/etc/kubernetes/pki/mine.crt"))) == 1


def test_writing_to_a_read_only_mount_gives_a_warning():
    fields = api_server("audit-log-path", "/var/log/k/audit.log", volume("/var/log/k", "/var/log/k"))
    assert said(fields) == [
        (
            "apiServer.extraArgs: --audit-log-path: kube-apiserver cannot write to /var/log/k/audit.log, "
            "because /var/log/k is mounted read-only (volume audit)"
        )
    ]
    assert said(fields.replace("readOnly: true", "readOnly: false")) == []


def test_the_innermost_mount_decides():
    fields = api_server("audit-policy-file", "/etc/kubernetes/pki/audit/p", volume("/srv", "/etc/kubernetes/pki/audit"))
    assert said(fields, there=["/srv/p"]) == []


def test_values_that_are_no_absolute_paths_are_not_checked():
    for name, value in (("audit-log-path", "-"), ("etcd-prefix", "/registry"), ("api-audiences", "/x"), ("token-auth-file", "tokens.csv")):
        assert said(api_server(name, value)) == []


def test_every_file_of_a_pair_for_a_server_name_is_checked():
    found = said(api_server("tls-sni-cert-key", "/etc/kubernetes/pki/a.crt,/etc/kubernetes/pki/a.key:a.example.com"))
    assert [text.removesuffix(" does not exist on this machine").rpartition(" ")[2] for text in found] == [
        "/etc/kubernetes/pki/a.crt",
        "/etc/kubernetes/pki/a.key",
    ]


def test_files_of_the_kubelet_are_checked_at_their_paths():
    init = "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration:\n  kubeletExtraArgs: "
    args = "[{name: image-credential-provider-config, value: /srv/credentials.yaml}, {name: node-ip, value: 10.98.0.11}]"
    assert said(init + args, there=["/srv/credentials.yaml"]) == []
    assert said(init + args) == [
        "nodeRegistration.kubeletExtraArgs: --image-credential-provider-config: /srv/credentials.yaml does not exist on this machine"
    ]


def test_a_joining_machine_is_checked_with_our_own_version():
    around = Surroundings(configuration=None, layout=Layout(), look=lambda: HOST, exists=lambda _: True)
    args = [Arg(name="node-labels", value="a=b"), Arg(name="nod-labels", value="a=b")]
    (found,) = extra_arguments.warnings([Given(component="kubelet", path="p", arguments=args)], around)
    assert found == "p: kubelet 1.36 has no flag --nod-labels and does not start with it; did you mean --node-labels?"


def test_unknown_releases_and_images_are_checked_for_files_only():
    args = "    extraArgs: [{name: nonsense, value: x}, {name: wal-dir, value: /srv}]\n"
    found = said(f"etcd:\n  local:\n    imageTag: mine\n{args}")
    assert found == [
        "etcd.local.extraArgs: --wal-dir: /srv is not in etcd's static pod, which mounts no directory above it; mount it with a patch: etcd has no extraVolumes"
    ]


PATHS = st.sampled_from(("/etc/kubernetes/pki/ca.crt", "//srv//a/../b", "/", "relative", "", "/a\0b", "/x" * 3000)) | st.text(max_size=20)
NAMES = st.sampled_from(("audit-policy-file", "audit-log-path", "tls-sni-cert-key", "profiling", "client-ca-file")) | st.text(
    min_size=1, max_size=20
)


@given(name=NAMES, value=PATHS, host=PATHS, mount=PATHS)
def test_no_argument_raises_an_error(name, value, host, mount):
    """Arguments of any accepted configuration are checked without an error, on the real machine too."""
    mine = HostPathMount(name="mine", host_path=host, mount_path=mount)
    base = load_init(yaml.load_all(f"{CLUSTER}kubernetesVersion: v1.36.3\n"), detected=HOST).configuration
    cluster = with_attribute(base.cluster, "api_server.extra_args", (Arg(name=name, value=value),))
    configuration = with_attribute(base, "cluster", with_attribute(cluster, "api_server.extra_volumes", (mine,)))
    real = RealHost(layout=Layout(), environment={})

    def exists(path):
        try:
            return real.state(PurePosixPath(path)) is not None
        except HostError:
            return True

    around = Surroundings(configuration=configuration, layout=Layout(), look=lambda: HOST, exists=exists)
    found = extra_arguments.warnings(of_control_plane(configuration), around)
    assert all(text.startswith("apiServer.extraArgs: ") for text in found)


def test_a_path_is_recognised_however_it_is_written():
    fields = api_server("audit-policy-file", "//etc/audit/../audit//policy.yaml", volume("//srv/./audit", "//etc//audit/"))
    assert said(fields, there=["/srv/audit/policy.yaml"]) == []
    assert len(said(fields)) == 1


def test_each_component_has_a_table_for_each_release():
    for line in LINES:
        sizes = [len(found.flags) for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
                 if (found := extra_arguments.flags_of(name, line))]  # fmt: skip
        assert len(sizes) == 4
        assert min(sizes) > 50
    assert extra_arguments.flags_of("etcd", "3.6") is not None
    assert extra_arguments.flags_of("etcd", "2.3") is None
    assert extra_arguments.flags_of("kube-proxy", "1.36") is None


def test_a_removed_flag_gives_a_warning_with_its_replacement():
    assert said(api_server("insecure-port", "0")) == [
        (
            "apiServer.extraArgs: kube-apiserver 1.36 has no flag --insecure-port and does not start with it;"
            " removed in v1.24: leave it out: the API server serves TLS only"
        )
    ]


@pytest.mark.parametrize(("component", "name"), removed.ARGUMENTS)
def test_no_supported_release_has_a_flag_that_counts_as_removed(component, name):
    known = [extra_arguments.flags_of(component, line) for line in ("1.35", "1.36", "1.37")]
    assert [flags.line for flags in known if flags and name in flags.flags] == []


def test_a_flag_of_other_releases_gives_a_specific_warning():
    init = "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration:\n  kubeletExtraArgs: "
    (found,) = said(f"{init}[{{name: storage-driver-db, value: cadvisor}}]", version="v1.37.1")
    assert found.endswith("kubelet 1.37 has no flag --storage-driver-db and does not start with it; there is one in 1.35 and 1.36 only")
    (older,) = said(f"{init}[{{name: storage-driver-db, value: cadvisor}}]", version="v1.35.0")
    assert "--storage-driver-db of kubelet 1.35 is deprecated: " in older


def test_etcd_is_checked_with_the_release_of_its_image():
    args = "    extraArgs: [{name: discovery-proxy, value: x}, {name: experimental-corrupt-check-time, value: 1m}]\n"
    assert [text.partition(" is deprecated")[0] for text in said(f"etcd:\n  local:\n{args}")] == [
        "etcd.local.extraArgs: --experimental-corrupt-check-time of etcd 3.6"
    ]
    assert said(f"etcd:\n  local:\n    imageTag: 3.7.0-0\n{args}") == [
        f"etcd.local.extraArgs: etcd 3.7 has no flag --{name} and does not start with it; there is one in 3.6 only"
        for name in ("discovery-proxy", "experimental-corrupt-check-time")
    ]


def test_deprecation_messages_are_those_of_the_release():
    assert len(said(api_server("enable-logs-handler", "false"), version="v1.36.0")) == 1
    assert said(api_server("enable-logs-handler", "false"), version="v1.37.0") == []


@pytest.mark.parametrize("line", LINES)
def test_every_flag_that_we_write_exists_in_the_component(line):
    for row in COMPONENTS.values():
        known = extra_arguments.flags_of(row.name, "3.6" if row.name == "etcd" else line)
        assert known is not None
        assert {flag.name for flag in row.flags} <= known.flags.keys()
        assert {flag.name for flag in row.flags if known.flags[flag.name].deprecated} <= {"kubeconfig"}
