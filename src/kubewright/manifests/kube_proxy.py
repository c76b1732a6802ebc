"""The kube-proxy add-on (kubeadm v1.36: phases/addons/proxy)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.kubeadm.types import ClusterConfiguration, Configuration
from kubewright.apis.kubeadm.versions import component_image
from kubewright.apis.machine import Addresses, Detected
from kubewright.base import yaml
from kubewright.manifests import pods
from kubewright.manifests.configmaps import config_map, signed
from kubewright.manifests.rbac import Purpose, grants, service_account
from kubewright.pki import specs, table

NAME: Final = "kube-proxy"
_DIRECTORY: Final = "/var/lib/kube-proxy"
_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_LOCK: Final = "/run/xtables.lock"
_MODULES: Final = "/lib/modules"


def objects(configuration: Configuration, addresses: Addresses, detected: Detected) -> list[dict[str, Any]]:
    """Return all objects, in the order in which kubeadm writes them."""
    return [
        settings(configuration, specs.server(table.Endpoint.CONTROL_PLANE, configuration, addresses)),
        daemon_set(configuration.cluster, detected.proxy_environment),
        service_account(NAME),
        *grants(Purpose.KUBE_PROXY),
    ]


def settings(configuration: Configuration, server: str) -> dict[str, Any]:
    """Return the ConfigMap. Neither text ends with a newline."""
    data = {"config.conf": yaml.dump(configuration.kube_proxy.document).rstrip("\n"), "kubeconfig.conf": kubeconfig(server)}
    return config_map(NAME, data, **signed(configuration.kube_proxy, data), labels={"app": NAME})


def kubeconfig(server: str) -> str:
    """Return the kubeconfig of a pod that authenticates with its service account.

    Its keys are in kubeadm's order, not sorted.
    """
    parts: tuple[Mapping[str, object], ...] = (
        {"apiVersion": "v1"},
        {"kind": "Config"},
        {"clusters": [{"cluster": {"certificate-authority": f"{_SERVICE_ACCOUNT}/ca.crt", "server": server}, "name": "default"}]},
        {"contexts": [{"context": {"cluster": "default", "namespace": "default", "user": "default"}, "name": "default"}]},
        {"current-context": "default"},
        {"users": [{"name": "default", "user": {"tokenFile": f"{_SERVICE_ACCOUNT}/token"}}]},
    )
    return "".join(map(yaml.dump, parts)).rstrip("\n")


def daemon_set(cluster: ClusterConfiguration, proxies: Mapping[str, str]) -> dict[str, Any]:
    """Return the DaemonSet. `proxies` are the proxy variables of our own environment, which are passed to the pods."""
    labels = {"k8s-app": NAME}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"labels": dict(labels), "name": NAME, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(cluster, proxies)},
            "updateStrategy": {"type": "RollingUpdate"},
        },
        "status": dict.fromkeys(("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"), 0),
    }


def _pod(cluster: ClusterConfiguration, proxies: Mapping[str, str]) -> dict[str, Any]:
    return {
        "containers": [_container(cluster, proxies)],
        "hostNetwork": True,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "priorityClassName": "system-node-critical",
        "serviceAccountName": NAME,
        "tolerations": [{"operator": "Exists"}],
        "volumes": [
            {"configMap": {"name": NAME}, "name": NAME},
            {"hostPath": {"path": _LOCK, "type": "FileOrCreate"}, "name": "xtables-lock"},
            {"hostPath": {"path": _MODULES}, "name": "lib-modules"},
        ],
    }


def _container(cluster: ClusterConfiguration, proxies: Mapping[str, str]) -> dict[str, Any]:
    node_name = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return {
        "command": ["/usr/local/bin/kube-proxy", f"--config={_DIRECTORY}/config.conf", "--hostname-override=$(NODE_NAME)"],
        "env": [node_name, *pods.environment(proxies, ())],
        "image": component_image(cluster, NAME),
        "imagePullPolicy": "IfNotPresent",
        "name": NAME,
        "resources": {},
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"mountPath": _DIRECTORY, "name": NAME},
            {"mountPath": _LOCK, "name": "xtables-lock"},
            {"mountPath": _MODULES, "name": "lib-modules", "readOnly": True},
        ],
    }
