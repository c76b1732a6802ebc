"""What the phases of init do to a machine and to a cluster in memory."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest
from init_kit import TOKEN, Box, asked, names

from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.base import yaml
from kubewright.base.change import Action, Lifetime
from kubewright.base.errors import CertificateError, CheckFailed, UsageError
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import CONFIG_MAP, named
from kubewright.lifecycle.steps import stand_ins
from kubewright.pki.encryption import sealing
from kubewright.pki.keys import KeyPool
from kubewright.tokens import cluster_info, parse

EVERYTHING = 58
"""16 certificates, keys and kubeconfigs; 3 directories, 8 files, the kubelet; the Node and 29 objects."""


def test_a_full_run_creates_everything_once(box):
    done = names(box.run(asked()))
    assert len(done) == len(set(done)) == EVERYTHING
    assert done[0] == "certificate ca"
    assert done[-1] == "rolebinding kube-system/kube-proxy"
    assert box.services.done == [("restart", "kubelet")]


def test_a_second_run_changes_nothing(box):
    first = box.run(asked())
    before, box.services.done = box.snapshot(), []
    second = box.run(asked())
    assert names(second) == []
    assert len(second) == len(first) > EVERYTHING
    assert box.snapshot() == before
    assert box.services.done == []


MARKS = "node-role.kubernetes.io/control-plane node.kubernetes.io/exclude-from-external-load-balancers"
FIRST = {
    "etcd": ['Creating the static pod manifest of local etcd in "{manifests}"'],
    "control-plane": [
        'Using manifest directory "{manifests}"',
        'Creating the static pod manifest of "kube-apiserver"',
        'Creating the static pod manifest of "kube-controller-manager"',
        'Creating the static pod manifest of "kube-scheduler"',
    ],
    "kubelet-start": [
        'Wrote "{kubelet}/kubeadm-flags.env"',
        'Wrote "{kubelet}/instance-config.yaml"',
        'Wrote "{kubelet}/config.yaml"',
        "Starting the kubelet",
    ],
    "upload-config": ["Storing the configuration in ConfigMap kubeadm-config of namespace kube-system"],
    "kubelet": ["Storing the kubelet's configuration in ConfigMap kubelet-config of namespace kube-system"],
    "mark-control-plane": [
        f"Marking the Node node1 as a control plane with the labels [{MARKS}]",
        "Marking the Node node1 with the taints [node-role.kubernetes.io/control-plane:NoSchedule]",
    ],
    "bootstrap-token": [
        f"Using token: {TOKEN}",
        "Configuring the rights of machines that join",
        "Configuring RBAC rules that allow bootstrap tokens to get Nodes",
        "Configuring RBAC rules that allow bootstrap tokens to request certificates for nodes",
        "Configuring RBAC rules that approve requests of bootstrap tokens automatically",
        "Configuring RBAC rules that allow nodes to rotate their certificates",
        "Configuring RBAC rules that allow the API server to access kubelets",
        "Publishing the ConfigMap cluster-info in the namespace kube-public",
    ],
    "addons": ["Applied essential addon: CoreDNS", "Applied essential addon: kube-proxy"],
}
AGAIN = {
    "etcd": ['Using existing static pod manifest of local etcd in "{manifests}"'],
    "control-plane": [
        'Using manifest directory "{manifests}"',
        'Using existing static pod manifest of "kube-apiserver"',
        'Using existing static pod manifest of "kube-controller-manager"',
        'Using existing static pod manifest of "kube-scheduler"',
    ],
    "kubelet-start": [
        'Using existing "{kubelet}/kubeadm-flags.env"',
        'Using existing "{kubelet}/instance-config.yaml"',
        'Using existing "{kubelet}/config.yaml"',
        "The kubelet is already running",
    ],
    "upload-config": ["Using existing ConfigMap kubeadm-config of namespace kube-system"],
    "kubelet": ["Using existing ConfigMap kubelet-config of namespace kube-system"],
    "mark-control-plane": ["The Node node1 already has the labels and taints of a control plane"],
    "bootstrap-token": [
        f"Using token: {TOKEN}",
        "Using existing rights of machines that join",
        "Using existing ConfigMap cluster-info in the namespace kube-public",
    ],
    "addons": ["Using existing essential addon: CoreDNS", "Using existing essential addon: kube-proxy"],
}


def told(box, **more: object):
    box.reporter.events.clear()
    box.run(asked(), **more)
    return {topic: box.lines(topic) for topic in FIRST}


def test_changes_are_reported_and_existing_files_used(box):
    first, again = (
        {
            topic: [line.format(manifests=box.layout.manifests, kubelet=box.layout.kubelet) for line in lines]
            for topic, lines in rows.items()
        }
        for rows in (FIRST, AGAIN)
    )
    assert told(box) == first
    assert told(box) == again
    assert told(box, overlay=True) == again


def test_only_differences_are_reported(box):
    box.run(asked())
    Path(box.layout.manifest("kube-scheduler")).write_text("other")
    Path(box.layout.kubelet_config).write_text("other")
    again = told(box)
    assert again["control-plane"][1:] == [
        'Using existing static pod manifest of "kube-apiserver"',
        'Using existing static pod manifest of "kube-controller-manager"',
        'Updating the static pod manifest of "kube-scheduler"',
    ]
    assert again["kubelet-start"][1:] == [
        f'Using existing "{box.layout.kubelet}/instance-config.yaml"',
        f'Wrote "{box.layout.kubelet}/config.yaml"',
        "Starting the kubelet",
    ]


def test_the_kubelet_is_restarted_only_if_its_files_change(box):
    box.run(asked())
    box.services.done = []
    changes = box.run(asked(init="nodeRegistration: {kubeletExtraArgs: [{name: v, value: '4'}]}\n"))
    assert names(changes) == [f"file {box.layout.kubelet_flags}", "service kubelet"]
    assert box.services.done == [("restart", "kubelet")]


def test_a_kubelet_started_before_its_files_were_written_is_restarted(box):
    box.run(asked())
    box.services.done, written = [], Path(box.layout.kubelet_config).stat().st_mtime
    box.services.since = written + 0.5
    assert names(box.run(asked())) == []
    box.services.since = written - 0.5
    assert names(box.run(asked(), overlay=True)) == ["service kubelet"]
    assert names(box.run(asked())) == ["service kubelet"]
    assert box.services.done == [("restart", "kubelet")]


def test_without_a_service_manager_the_kubelet_is_not_started(box):
    box.services.known = False
    assert "service kubelet" not in names(box.run(asked(only=("kubelet-start",))))
    assert "start it manually" in box.lines("kubelet-start")[-1]


def test_a_kubelet_that_rotates_its_certificate_is_pointed_to_it(box):
    box.run(asked(only=("certs", "kubeconfig")))
    current = Path(box.layout.kubelet_client_current)
    assert names(box.run(asked(only=("kubelet-finalize",)))) == []
    current.parent.mkdir(parents=True)
    current.write_text("x")
    assert names(box.run(asked(only=("kubelet-finalize",)))) == [f"file {box.layout.kubeconfig('kubelet')}"]
    (user,) = yaml.load(Path(box.layout.kubeconfig("kubelet")).read_text())["users"]
    assert user["user"] == {"client-certificate": str(current), "client-key": str(current)}
    assert names(box.run(asked(only=("kubelet-finalize",)))) == []
    assert box.services.done == []


def test_the_certificate_that_the_kubelet_rotates_is_in_its_own_directory(box):
    arguments = [f"{{name: cert-dir, value: {box.root / name}}}" for name in ("first", "second")]
    init = f"nodeRegistration: {{kubeletExtraArgs: [{', '.join(arguments)}]}}\n"
    box.run(asked(only=("certs", "kubeconfig"), init=init))
    for place in (Path(box.layout.kubelet_client_current), box.root / "first/kubelet-client-current.pem"):
        place.parent.mkdir(parents=True)
        place.write_text("x")
    assert names(box.run(asked(only=("kubelet-finalize",), init=init))) == []
    current = box.root / "second/kubelet-client-current.pem"
    current.parent.mkdir()
    current.write_text("x")
    assert names(box.run(asked(only=("kubelet-finalize",), init=init))) == [f"file {box.layout.kubeconfig('kubelet')}"]
    (user,) = yaml.load(Path(box.layout.kubeconfig("kubelet")).read_text())["users"]
    assert user["user"] == {"client-certificate": str(current), "client-key": str(current)}


@pytest.mark.parametrize("init", ["", "nodeRegistration: {kubeletExtraArgs: [{name: cert-dir, value: /elsewhere}]}\n"])
def test_a_plan_assumes_the_certificate_that_the_kubelet_will_create(box, init):
    files = stand_ins.kubelet_files(box.layout)
    changes = box.run(asked(init=init), overlay=True, kubelet_makes=files)
    assert names(changes).count(f"file {box.layout.kubeconfig('kubelet')}") == 1
    assert box.snapshot() == {}


def test_external_etcd_leaves_out_files_of_a_local_one(box):
    cluster = "etcd: {external: {endpoints: ['http://192.0.2.1:2379']}}\n"
    done = [target.replace(str(box.root), "") for target in names(box.run(asked(cluster=cluster)))]
    assert [target for target in done if "etcd" in target] == []
    assert len([target for target in done if target.startswith("certificate")]) == 5


def test_an_external_ca_signs_nothing(box):
    box.run(asked(only=("certs", "kubeconfig")))
    Path(box.layout.key("ca")).unlink()
    box.run(asked(only=("control-plane",)))
    command = yaml.load(Path(box.layout.manifest("kube-controller-manager")).read_bytes())["spec"]["containers"][0]["command"]
    assert "--cluster-signing-cert-file=" in command
    assert "--cluster-signing-key-file=" in command


def test_certificates_of_an_external_ca_are_not_uploaded(box):
    box.run(asked(only=("certs",)))
    Path(box.layout.key("ca")).unlink()
    before = box.snapshot()
    with pytest.raises(UsageError, match="cannot be uploaded"):
        box.run(asked(upload_certs=True))
    assert box.snapshot() == before


def test_a_feature_gate_sets_the_algorithm_without_changing_the_stored_one(box):
    cluster = "featureGates: {PublicKeysECDSA: true}\n"
    request = asked(cluster=cluster, only=("certs/ca", "upload-config/kubeadm"))
    request.documents[0].value["encryptionAlgorithm"] = "RSA-4096"
    box.run(request)
    assert b"EC PRIVATE KEY" in Path(box.layout.key("ca")).read_bytes()
    stored = box.kube.get(CONFIG_MAP, "kubeadm-config", "kube-system")["data"]["ClusterConfiguration"]
    assert yaml.load(stored)["encryptionAlgorithm"] == "RSA-4096"


@pytest.mark.parametrize("phases", [("kubeconfig",), ("kubeconfig/admin", "kubeconfig/scheduler"), ("certs", "kubeconfig")])
def test_kubeconfigs_that_an_expired_ca_signs_give_one_warning(box, phases):
    """As in kubeadm, also if only kubeconfigs are created."""
    box.run(asked(only=("certs",)))
    box.clock.advance(3652 * 86_400)
    box.reporter.events.clear()
    box.run(asked(only=phases))
    expected = ["ca.crt is not valid now (expired 2 d ago): certificates that it has signed are refused"]
    assert [text for text in box.warnings() if text.startswith("ca.crt ")] == expected
    assert Path(box.layout.kubeconfig("admin")).exists()


def test_keys_of_certificates_and_kubeconfigs_are_generated_ahead(box, monkeypatch):
    reserved = []
    monkeypatch.setattr(KeyPool, "reserve", lambda self, algorithm, count=1: reserved.extend([algorithm] * count))
    box.run(asked(), overlay=True)
    assert len(reserved) == 11 + 5
    reserved.clear()
    box.run(asked(only=("certs",)))
    assert len(reserved) == 11
    reserved.clear()
    box.run(asked(only=("kubeconfig",)))
    assert len(reserved) == 5
    reserved.clear()
    box.run(asked())
    assert reserved == []


def test_all_certificates_of_a_run_have_the_same_start(box):
    from kubewright.pki import certificates

    begun = box.clock.now
    box.clock.now = lambda: (box.clock.advance(7), begun())[1]  # time passes at every check
    box.run(asked(only=("certs",)))
    found = [certificates.parse(path.read_bytes())[0] for path in Path(box.layout.pki).rglob("*.crt")]
    assert len(found) == 10
    assert len({one.not_before for one in found}) == 1


def test_uploaded_certificates_are_decrypted_with_the_printed_key(box):
    box.run(asked(upload_certs=True))
    told = next(line for line in box.lines("upload-certs") if line.startswith("Using certificate key:"))
    key = sealing.parse_key(told.split("\n")[1])
    data = box.kube.get(named("Secret"), "kubeadm-certs", "kube-system")["data"]
    assert len(data) == 8
    for name, value in data.items():
        content = Path(box.layout.pki / name.replace("etcd-", "etcd/")).read_bytes()
        assert sealing.unseal(base64.b64decode(value), key, name=name) == content


def test_nothing_is_uploaded_unless_requested(box):
    assert [target for target in names(box.run(asked())) if "kubeadm-certs" in target] == []
    assert "--upload-certs" in box.lines("upload-certs")[0]


def test_a_certificate_key_and_tokens_can_be_withheld(box):
    request = asked(
        upload_certs=True, skip_token_print=True, skip_certificate_key_print=True, cluster="controlPlaneEndpoint: lb.example:6443\n"
    )
    box.run(request)
    said = "\n".join(box.lines())
    assert TOKEN not in said
    assert "0123456789abcdef" not in said
    assert said.count("<value withheld>") == 5


def test_the_join_commands_have_the_format_that_scripts_parse(box):
    box.run(asked(cluster="controlPlaneEndpoint: lb.example:6443\n", init="certificateKey: " + "ab" * 32 + "\n", upload_certs=True))
    text = box.lines("")[0]
    before, control_plane, worker = text.split("kubewright join ")
    assert "the same for kubeadm and kubewright" in before
    assert "`--token -` and\n`--certificate-key -`, which read standard input" in before
    assert worker.startswith(f"lb.example:6443 --token {TOKEN} \\\n\t--discovery-token-ca-cert-hash sha256:")
    assert worker.endswith(" ")
    assert control_plane.split("\n")[:3][2] == "\t--control-plane --certificate-key " + "ab" * 32
    assert control_plane.split("\n")[1].endswith(" \\")


def test_without_uploaded_certificates_a_message_says_to_copy_them(box):
    box.run(asked(cluster="controlPlaneEndpoint: lb.example:6443\n"))
    text = box.lines("")[0]
    assert "after copying the CAs" in text
    assert "\t--control-plane \n" in text


def test_cluster_info_is_signed_at_once_and_signatures_are_short_lived(box):
    box.run(asked())
    found = box.kube.get(CONFIG_MAP, "cluster-info", "kube-public")
    assert cluster_info.verify(found, token=parse(TOKEN), server="x", now=datetime.now(UTC)).server == "https://10.98.0.11:6443"
    other = "fedcba.0123456789abcdef"
    changes = [change for change in box.run(asked(init=f"bootstrapTokens: [{{token: {other}}}]\n", only=("bootstrap-token",))) if change]
    assert [(change.target, change.lifetime) for change in changes] == [
        ("secret kube-system/bootstrap-token-fedcba", Lifetime.EPHEMERAL),
        ("configmap kube-public/cluster-info", Lifetime.EPHEMERAL),
    ]
    assert set(box.kube.get(CONFIG_MAP, "cluster-info", "kube-public")["data"]) == {
        "kubeconfig",
        "jws-kubeconfig-abcdef",
        "jws-kubeconfig-fedcba",
    }


def test_a_token_without_expiry_is_durable(box):
    changes = box.run(asked(init=f"bootstrapTokens: [{{token: {TOKEN}, ttl: 0s}}]\n"))
    (token,) = [change for change in changes if change.target == "secret kube-system/bootstrap-token-abcdef"]
    assert token.lifetime is Lifetime.DURABLE


def test_cluster_info_requires_the_ca(box):
    with pytest.raises(CertificateError, match=r"ca\.crt is missing"):
        box.run(asked(only=("bootstrap-token",)))


def test_other_keys_of_kubeadm_config_stay(box):
    box.kube.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config", "namespace": "kube-system"}, "data": {"Mine": "x"}}
    )
    box.run(asked())
    assert set(box.kube.get(CONFIG_MAP, "kubeadm-config", "kube-system")["data"]) == {"Mine", "ClusterConfiguration"}


def deployment(name, replicas):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"replicas": replicas},
    }


def test_the_number_of_dns_pods_stays(box):
    box.kube.create(deployment("coredns", 7))
    box.run(asked())
    assert box.kube.get(named("Deployment"), "coredns", "kube-system")["spec"]["replicas"] == 7


def test_several_dns_deployments_are_an_error(box):
    box.kube.create(deployment("coredns", 2))
    box.kube.create(deployment("dns-of-mine", 2))
    with pytest.raises(CheckFailed, match="more than one DNS Deployment") as caught:
        box.run(asked())
    assert "coredns, dns-of-mine" in caught.value.detail


@pytest.mark.parametrize(("found", "stays"), [("mine", True), ("", False), (None, False)])
def test_a_customised_corefile_stays(box, found, stays):
    data = {} if found is None else {"data": {"Corefile": found}}
    box.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coredns", "namespace": "kube-system"}, **data})
    box.run(asked())
    assert (box.kube.get(CONFIG_MAP, "coredns", "kube-system")["data"]["Corefile"] == found) is stays


def test_the_node_is_marked_with_the_configured_taints(box):
    box.run(asked(init="nodeRegistration: {taints: [{key: a, value: b, effect: NoExecute}]}\n"))
    node = box.kube.get(named("Node"), "node1")
    assert node["spec"]["taints"] == [{"key": "a", "value": "b", "effect": "NoExecute"}]
    assert "[a=b:NoExecute]" in box.lines("mark-control-plane")[1]


def test_plans_and_dry_runs_do_not_check_the_machine(box):
    box.run(asked(only=("preflight",)))
    said = "\n".join(box.lines("preflight"))
    assert "checked when init really runs" in said
    assert "kube-apiserver:v1.36.2" in said
    assert said.count("\t") == 7


def test_skipped_phases_leave_no_trace(box):
    changes = box.run(asked(overrides=InitOverrides(skip_phases=("addon", "upload-config"))))
    assert [change.target for change in changes if "coredns" in change.target or "kubeadm-config" in change.target] == []


WRITING = ("upload-config/kubeadm", "upload-config/kubelet", "mark-control-plane", "bootstrap-token", "addon/coredns", "addon/kube-proxy")
ADMINISTRATORS = "clusterrolebinding kubeadm:cluster-admins"


@pytest.mark.parametrize("phase", WRITING)
def test_every_phase_that_writes_to_the_cluster_gives_administrators_their_permissions(box, phase):
    box.run(asked(only=("certs",)))
    assert ADMINISTRATORS not in names(box.run(asked(only=(phase,), kubeconfig="/elsewhere/admin.conf")))
    done = names(box.run(asked(only=(phase,), kubeconfig=str(box.layout.kubeconfig("admin")))))
    assert done == [ADMINISTRATORS]
    assert names(box.run(asked(only=(phase,)))) == []


def test_administrators_get_their_permissions_if_no_configuration_is_stored(box):
    done = names(box.run(asked(overrides=InitOverrides(skip_phases=("upload-config",)))))
    assert done.count(ADMINISTRATORS) == 1


def test_the_join_command_requires_the_values_that_it_shows():
    with pytest.raises(UsageError, match="unresolved dependencies"):
        Box(Path("/nonexistent")).run(asked(only=("show-join-command",)))


def test_the_node_of_a_plan_is_a_stand_in_and_not_a_change(box):
    kube = RecordingKube(stand_ins=stand_ins.objects(box.call(asked()).configuration))
    assert kube.get(named("Node"), "node1")["metadata"]["labels"] == {"kubernetes.io/hostname": "node1"}
    assert kube.writes == []


def test_every_change_names_its_object(box):
    changes = box.run(asked(), overlay=True)
    assert [change for change in changes if change.action is Action.CREATE and not (change.diff or change.reason)] == []


def test_the_node_gets_only_the_marks_of_a_control_plane(box):
    box.run(asked(only=("mark-control-plane",)))
    [patched] = [write.call.body for write in box.kube.writes if write.call.resource == named("Node")]
    labels = ("node-role.kubernetes.io/control-plane", "node.kubernetes.io/exclude-from-external-load-balancers")
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    assert patched == {"metadata": {"labels": dict.fromkeys(labels, "")}, "spec": {"taints": [taint]}}


def test_an_etcd_that_differs_only_in_flags_for_its_first_start_is_not_restarted(tmp_path):
    box = Box(tmp_path)
    box.run(asked())
    path = Path(box.layout.manifest("etcd"))
    text = path.read_text()
    upgraded = text.replace("    - --initial-cluster=", "    - --initial-cluster-state=existing\n    - --initial-cluster=")
    assert upgraded != text
    path.write_text(upgraded)
    box.run(asked())
    assert path.read_text() == upgraded
    path.write_text(upgraded.replace("--snapshot-count=10000", "--snapshot-count=1"))
    box.run(asked())
    assert path.read_text() == text
