"""Patches compared with real kubeadm: the same directory of patches gives the same manifests and kubelet files, or an error of both."""

from __future__ import annotations

import pytest
from certs_comparison import find_kubeadm
from phases_comparison import Root

from kubewright.base import yaml

CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.98.0.11}
nodeRegistration: {name: node1, criSocket: unix:///var/run/containerd/containerd.sock}
patches: {directory: /patches}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
apiServer:
  extraArgs: [{name: v, value: "2"}]
  extraEnvs: [{name: A, value: one}, {name: B, value: two}, {name: C, value: three}]
  extraVolumes: [{name: audit, hostPath: /audit, mountPath: /audit}, {name: zone, hostPath: /zone, mountPath: /zone}]
"""

POD = ("control-plane", "all")
ETCD = ("etcd", "local")
KUBELET = ("kubelet-start",)
DNS = ("addon", "coredns")


def containers(text: str, name: str = "kube-apiserver") -> str:
    return f"spec:\n  containers:\n  - name: {name}\n{text}"


# Name of the case: the phase, and the files of its directory.
CASES = {
    "a strategic patch without a type": (POD, {"kube-apiserver.yaml": "metadata: {annotations: {a: b}}\n"}),
    "an added environment variable comes first": (POD, {"kube-apiserver.yaml": containers("    env: [{name: Z, value: z}]\n")}),
    "a variable of the list changes": (POD, {"kube-apiserver.yaml": containers("    env: [{name: B, value: patched}]\n")}),
    "variables in another order": (POD, {"kube-apiserver.yaml": containers("    env: [{name: C, value: c}, {name: A, value: a}]\n")}),
    "new ones between old ones": (
        POD,
        {"kube-apiserver.yaml": containers("    env: [{name: C, value: c}, {name: N, value: n}, {name: A, value: a}]\n")},
    ),
    "an element is deleted": (POD, {"kube-apiserver.yaml": containers("    env: [{name: B, $patch: delete}]\n")}),
    "a list is replaced": (POD, {"kube-apiserver.yaml": containers("    env: [{$patch: replace}, {name: Q, value: q}]\n")}),
    "an order is set": (
        POD,
        {
            "kube-apiserver.yaml": containers(
                "    $setElementOrder/env: [{name: C}, {name: B}, {name: A}]\n    env: [{name: B, value: b}]\n"
            )
        },
    ),
    "an order alone": (POD, {"kube-apiserver.yaml": containers("    $setElementOrder/env: [{name: C}, {name: A}]\n")}),
    "an order that lacks an element": (
        POD,
        {"kube-apiserver.yaml": containers("    $setElementOrder/env: [{name: C}]\n    env: [{name: B, value: b}]\n")},
    ),
    "a map is replaced": (POD, {"kube-scheduler.yaml": "metadata:\n  labels: {$patch: replace, only: this}\n"}),
    "a map is deleted": (POD, {"kube-scheduler.yaml": "metadata:\n  labels: {$patch: delete}\n"}),
    "an unknown directive": (POD, {"kube-scheduler.yaml": "metadata:\n  labels: {$patch: remove}\n"}),
    "keys are retained": (POD, {"kube-scheduler.yaml": "metadata:\n  labels: {$retainKeys: [tier, new], new: label}\n"}),
    "retained keys lack one": (POD, {"kube-scheduler.yaml": "metadata:\n  labels: {$retainKeys: [tier], new: label}\n"}),
    "null takes a field away": (POD, {"kube-scheduler.yaml": "spec: {priorityClassName: null, hostNetwork: null}\n"}),
    "null in something new": (
        POD,
        {"kube-scheduler.yaml": "spec: {affinity: {nodeAffinity: null}, dnsConfig: {nameservers: [1.1.1.1]}}\n"},
    ),
    "commands are replaced": (POD, {"kube-scheduler.yaml": containers("    command: [kube-scheduler, --v=9]\n", "kube-scheduler")}),
    "a container is added": (POD, {"kube-scheduler.yaml": containers("    image: b:1\n", "helper")}),
    "a container without a name": (POD, {"kube-scheduler.yaml": "spec: {containers: [{image: b}]}\n"}),
    "volumes and mounts": (
        POD,
        {
            "kube-apiserver+strategic.yaml": "spec:\n  volumes: [{name: new, hostPath: {path: /n}}, {name: zone, hostPath: {path: /other}}]\n"
            "  containers: [{name: kube-apiserver, volumeMounts: [{name: new, mountPath: /n}]}]\n"
        },
    ),
    "a probe changes": (POD, {"kube-apiserver.yaml": containers("    livenessProbe: {httpGet: {port: 6443}, failureThreshold: 4}\n")}),
    "unknown fields vanish": (POD, {"kube-scheduler.yaml": "spec: {hostNetwrok: true, containers: [{name: kube-scheduler, imagee: x}]}\n"}),
    "a field of a wrong type": (POD, {"kube-scheduler.yaml": "spec: {hostNetwork: maybe}\n"}),
    "a list where a map was": (POD, {"kube-scheduler.yaml": "metadata: {labels: [a]}\n"}),
    "quantities become canonical": (
        POD,
        {
            "kube-scheduler.yaml": containers(
                "    resources: {requests: {cpu: 0.5, memory: 1024Mi}, limits: {cpu: 2000m}}\n", "kube-scheduler"
            )
        },
    ),
    "a quantity that is none": (POD, {"kube-scheduler.yaml": containers("    resources: {requests: {cpu: much}}\n", "kube-scheduler")}),
    "security context and more": (
        POD,
        {
            "kube-controller-manager.yaml": "spec:\n  terminationGracePeriodSeconds: 5\n  tolerations: [{operator: Exists}]\n"
            "  securityContext: {runAsUser: 7, sysctls: [{name: a, value: b}]}\n"
            "  hostAliases: [{ip: 1.2.3.4, hostnames: [x]}]\n"
        },
    ),
    "several documents": (
        POD,
        {"kube-scheduler.yaml": "---\nmetadata: {annotations: {a: '1'}}\n---\n---\nmetadata: {annotations: {b: '2'}}\n---\n"},
    ),
    "documents of comments": (POD, {"kube-scheduler.yaml": "# nothing\n---\n# here\nmetadata: {annotations: {a: '1'}}\n"}),
    "a later file wins": (
        POD,
        {"kube-scheduler1.yaml": "metadata: {annotations: {a: second}}\n", "kube-scheduler0.yaml": "metadata: {annotations: {a: first}}\n"},
    ),
    "10 comes before 2": (
        POD,
        {"kube-scheduler2.yaml": "metadata: {annotations: {a: two}}\n", "kube-scheduler10.yaml": "metadata: {annotations: {a: ten}}\n"},
    ),
    "sub-directories count": (
        POD,
        {"x/kube-scheduler.yaml": "metadata: {annotations: {a: x}}\n", "kube-scheduler.yaml": "metadata: {annotations: {a: top}}\n"},
    ),
    "a name only begins with the target": (POD, {"kube-scheduler.old.yaml": "metadata: {annotations: {a: '1'}}\n"}),
    "a type with more after it": (POD, {"kube-scheduler+mergeful.yaml": "metadata: {annotations: {a: '1'}}\n"}),
    "an unknown type": (POD, {"kube-scheduler+patch.yaml": "metadata: {annotations: {a: '1'}}\n"}),
    "no type after the plus": (POD, {"kube-scheduler+.yaml": "metadata: {annotations: {a: '1'}}\n"}),
    "ignored names": (
        POD,
        {"README.md": "x", "kube-scheduler.yml": "a: b", "KUBE-SCHEDULER.yaml": "a: b", "kubeproxydaemonset.yaml": "a: b", "x": ""},
    ),
    "an empty file": (POD, {"kube-scheduler.yaml": ""}),
    "only blanks": (POD, {"kube-scheduler.yaml": " \n\n"}),
    "no YAML": (POD, {"kube-scheduler.yaml": "a: [\n"}),
    "a scalar": (POD, {"kube-scheduler.yaml": "hello\n"}),
    "a list as a strategic patch": (POD, {"kube-scheduler.yaml": "- a\n"}),
    "merge replaces lists": (POD, {"kube-scheduler+merge.json": '{"spec":{"containers":[{"name":"only","image":"x"}],"volumes":null}}'}),
    "merge with a list": (POD, {"kube-scheduler+merge.yaml": "[a]\n"}),
    "merge makes another kind": (POD, {"kube-scheduler+merge.yaml": "kind: Deployment\n"}),
    "merge makes an unknown version": (POD, {"kube-scheduler+merge.yaml": "apiVersion: v9\n"}),
    "json: add, replace, remove": (
        POD,
        {
            "kube-apiserver+json.yaml": "- {op: add, path: /metadata/labels/a~1b, value: c}\n"
            "- {op: replace, path: /spec/containers/0/image, value: x}\n- {op: remove, path: /spec/priority}\n"
        },
    ),
    "json: copy, move, test": (
        POD,
        {
            "kube-apiserver+json.yaml": "- {op: test, path: /kind, value: Pod}\n- {op: copy, from: /metadata/name, path: /metadata/labels/copy}\n"
            "- {op: move, from: /metadata/labels/tier, path: /metadata/labels/floor}\n"
        },
    ),
    "json: a test fails": (POD, {"kube-apiserver+json.yaml": "- {op: test, path: /kind, value: Node}\n"}),
    "json: a path is not there": (POD, {"kube-apiserver+json.yaml": "- {op: add, path: /spec/nowhere/x, value: 1}\n"}),
    "json: what is removed is not there": (POD, {"kube-apiserver+json.yaml": "- {op: remove, path: /spec/nowhere}\n"}),
    "json: insert into a list": (POD, {"kube-apiserver+json.yaml": "- {op: add, path: /spec/containers/0/command/1, value: --first=1}\n"}),
    "json: beyond a list": (POD, {"kube-apiserver+json.yaml": "- {op: add, path: /spec/containers/0/command/999, value: --x}\n"}),
    "json: a map": (POD, {"kube-apiserver+json.yaml": "op: add\n"}),
    "json: an unknown operation": (POD, {"kube-apiserver+json.yaml": "- {op: put, path: /kind, value: x}\n"}),
    "json: replace makes a missing key": (POD, {"kube-apiserver+json.yaml": "- {op: replace, path: /metadata/labels/new, value: x}\n"}),
    "json: from the end of a list": (
        POD,
        {
            "kube-apiserver+json.yaml": "- {op: add, path: /spec/containers/0/command/-1, value: --last=1}\n"
            "- {op: replace, path: /spec/containers/0/env/-1/value, value: x}\n- {op: remove, path: /spec/volumes/-2}\n"
        },
    ),
    "json: before a list": (POD, {"kube-apiserver+json.yaml": "- {op: remove, path: /spec/volumes/-9}\n"}),
    "json: a missing key tests as null": (POD, {"kube-apiserver+json.yaml": "- {op: test, path: /metadata/labels/new, value: null}\n"}),
    "json: a missing key is not a value": (POD, {"kube-apiserver+json.yaml": "- {op: test, path: /metadata/labels/new, value: x}\n"}),
    "json: the whole object": (
        POD,
        {"kube-apiserver+json.yaml": "- {op: replace, path: '', value: {apiVersion: v1, kind: Pod, spec: {}}}\n"},
    ),
    "etcd": (ETCD, {"etcd.json": '{"spec":{"containers":[{"name":"etcd","resources":{"limits":{"memory":"1Gi"}}}]}}'}),
    "etcd: a name that goes on": (ETCD, {"etcdbackup+merge.yaml": "metadata: {annotations: {a: null, b: c}}\n"}),
    "kubelet: strategic": (
        KUBELET,
        {"kubeletconfiguration.yaml": "maxPods: 5\nclusterDNS: [1.2.3.4]\nauthentication: {anonymous: {enabled: true}}\n"},
    ),
    "kubelet: unknown fields stay": (KUBELET, {"kubeletconfiguration+merge.yaml": "notAField: {x: [1, null]}\nmaxPods: '7'\n"}),
    "kubelet: json": (KUBELET, {"kubeletconfiguration1+json.yaml": "- {op: add, path: /podsPerCore, value: 7}\n"}),
    "kubelet: the socket is this machine's": (KUBELET, {"kubeletconfiguration.yaml": "containerRuntimeEndpoint: unix:///other\n"}),
    "kubelet: json makes a field": (KUBELET, {"kubeletconfiguration+json.yaml": "- {op: replace, path: /nothing, value: 7}\n"}),
    "dns: replicas": (DNS, {"corednsdeployment.yaml": "spec: {replicas: 5}\n"}),
    "dns: strategy": (DNS, {"corednsdeployment.yaml": "spec: {strategy: {$retainKeys: [type], type: Recreate}}\n"}),
    "dns: tolerations are replaced": (DNS, {"corednsdeployment.yaml": "spec: {template: {spec: {tolerations: [{operator: Exists}]}}}\n"}),
    "dns: json": (DNS, {"corednsdeployment+json.json": '[{"op":"remove","path":"/spec/template/spec/affinity"}]'}),
}


def test_there_are_enough_cases_of_patches():
    assert len(CASES) > 70


@pytest.fixture(scope="module", autouse=True)
def _kubeadm():
    find_kubeadm()


@pytest.mark.parametrize("name", CASES)
def test_patches_have_the_same_effect_as_with_kubeadm(tmp_path, name):
    phase, files = CASES[name]
    argv = ["init", "phase", *phase, "--config", "/kubeadm.yaml", *(("--print-manifest",) if phase is DNS else ())]
    roots = [Root(tmp_path / "ours"), Root(tmp_path / "theirs")]
    for root, patches in zip(roots, (f"{tmp_path}/ours/patches", "/patches"), strict=True):
        root.write("kubeadm.yaml", CONFIG.replace("/patches", patches))
        for file, content in files.items():
            root.write(f"patches/{file}", content)
    ours, theirs = roots[0].kubewright(*argv), roots[1].kubeadm(*argv)
    assert (ours.failed, ours.error if theirs.failed != ours.failed else "") == (theirs.failed, ""), theirs.error
    if phase is DNS:
        assert documents(ours.lines) == documents(theirs.lines)
    elif not theirs.failed:
        assert {path: content.decode() for path, content in ours.files.items()} == {p: c.decode() for p, c in theirs.files.items()}


def documents(lines):
    """The objects that a command printed. kubeadm's own lines are mixed into them, and one separator lacks its line break."""
    text = "\n".join(line for line in lines if not line.startswith("[patches]")).replace("---apiVersion", "---\napiVersion")
    return [without_empty(document.value) for document in yaml.load_all(text) if document.value is not None]


def without_empty(value):
    """Go leaves out some empty values; the meaning is the same."""
    if isinstance(value, dict):
        return {key: found for key, part in value.items() if (found := without_empty(part)) not in ({}, [], "", None, False)}
    return [without_empty(part) for part in value] if isinstance(value, list) else value


NEXT = "v1.37.1"
PROXY = {
    "kubeproxydaemonset.yaml": "spec: {template: {spec: {tolerations: [{key: a, operator: Exists}], containers: [{name: kube-proxy, env: [{name: A, value: b}]}]}}}\n",
    "kubeproxydaemonset+merge.yaml": "spec: {updateStrategy: null, template: {metadata: {labels: {more: labels}}}}\n",
    "kubeproxydaemonset0+json.json": '[{"op": "replace", "path": "/spec/template/spec/hostNetwork", "value": false}]',
    "kubeproxydaemonset+json.yaml": "[{op: remove, path: /nothing}]\n",
}


@pytest.mark.parametrize("name", PROXY)
def test_kube_proxy_is_patched_as_by_the_next_kubeadm(tmp_path, name):
    find_kubeadm(NEXT)
    argv = ["init", "phase", "addon", "kube-proxy", "--print-manifest", "--config", "/kubeadm.yaml"]
    outcomes = {}
    for side, patches in (("ours", f"{tmp_path}/ours/patches"), ("theirs", "/patches")):
        root = Root(tmp_path / side)
        root.write("kubeadm.yaml", CONFIG.replace("v1.36.3", NEXT).replace("/patches", patches))
        root.write(f"patches/{name}", PROXY[name])
        outcomes[side] = root.kubewright(*argv) if side == "ours" else root.kubeadm(*argv, version=NEXT)
    assert outcomes["ours"].failed == outcomes["theirs"].failed, outcomes["theirs"].error
    sets = {side: [body for body in documents(done.lines) if body["kind"] == "DaemonSet"] for side, done in outcomes.items()}
    assert sets["ours"] == sets["theirs"]
    assert len(sets["ours"]) == (0 if outcomes["ours"].failed else 1)
