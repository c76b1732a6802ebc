"""The CoreDNS add-on (kubeadm v1.36: phases/addons/dns)."""

from __future__ import annotations

from typing import Any, Final

from kubewright.apis.kubeadm.types import CONTROL_PLANE_LABEL, ClusterConfiguration
from kubewright.apis.kubeadm.versions import component_image
from kubewright.apis.kubelet import cluster_dns
from kubewright.manifests.configmaps import config_map
from kubewright.manifests.rbac import Purpose, grants, service_account

NAME: Final = "coredns"
SERVICE: Final = "kube-dns"
REPLICAS: Final = 2
_LABEL: Final = "k8s-app"
_METRICS: Final = 9153
_PORTS: Final = (("dns", 53, "UDP"), ("dns-tcp", 53, "TCP"), ("metrics", _METRICS, "TCP"))
_PROBE_PORTS: Final = (("liveness-probe", 8080, "TCP"), ("readiness-probe", 8181, "TCP"))


def objects(cluster: ClusterConfiguration, *, replicas: int = REPLICAS) -> list[dict[str, Any]]:
    """Return all objects, in the order in which kubeadm writes them."""
    return [
        config_map(NAME, {"Corefile": corefile(cluster.networking.dns_domain)}),
        *grants(Purpose.COREDNS),
        service_account(NAME),
        deployment(cluster, replicas=replicas),
        service(cluster),
    ]


def corefile(domain: str) -> str:
    """Return the configuration for a cluster domain."""
    plugins = (
        ("errors",),
        ("health", "lameduck 5s"),
        ("ready",),
        (f"kubernetes {domain} in-addr.arpa ip6.arpa", "pods insecure", "fallthrough in-addr.arpa ip6.arpa", "ttl 30"),
        (f"prometheus :{_METRICS}",),
        ("forward . /etc/resolv.conf", "max_concurrent 1000"),
        ("cache 30", f"disable success {domain}", f"disable denial {domain}"),
        ("loop",),
        ("reload",),
        ("loadbalance",),
    )
    lines = [".:53 {"]
    for name, *settings in plugins:
        lines.append(f"    {name} {{" if settings else f"    {name}")
        lines += [f"       {setting}" for setting in settings]
        lines += ["    }"] if settings else []
    return "\n".join([*lines, "}", ""])


def deployment(cluster: ClusterConfiguration, *, replicas: int = REPLICAS) -> dict[str, Any]:
    """Return the Deployment."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"labels": _labels(), "name": NAME, "namespace": "kube-system"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": _labels()},
            "strategy": {"rollingUpdate": {"maxUnavailable": 1}, "type": "RollingUpdate"},
            "template": {"metadata": {"labels": _labels()}, "spec": _pod(cluster)},
        },
        "status": {},
    }


def _labels() -> dict[str, str]:
    return {_LABEL: SERVICE}


def _pod(cluster: ClusterConfiguration) -> dict[str, Any]:
    return {
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_anti_affinity_term()]}},
        "containers": [_container(cluster)],
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": NAME,
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"effect": "NoSchedule", "key": CONTROL_PLANE_LABEL},
        ],
        "volumes": [{"configMap": {"items": [{"key": "Corefile", "path": "Corefile"}], "name": NAME}, "name": "config-volume"}],
    }


def _anti_affinity_term() -> dict[str, Any]:
    """Prefer machines that run no other CoreDNS pod."""
    same = {"matchExpressions": [{"key": _LABEL, "operator": "In", "values": [SERVICE]}]}
    return {"podAffinityTerm": {"labelSelector": same, "topologyKey": "kubernetes.io/hostname"}, "weight": 100}


def _container(cluster: ClusterConfiguration) -> dict[str, Any]:
    live = {"httpGet": {"path": "/health", "port": "liveness-probe", "scheme": "HTTP"}}
    return {
        "args": ["-conf", "/etc/coredns/Corefile"],
        "image": component_image(cluster, "coredns"),
        "imagePullPolicy": "IfNotPresent",
        "livenessProbe": {"failureThreshold": 5, **live, "initialDelaySeconds": 60, "successThreshold": 1, "timeoutSeconds": 5},
        "name": NAME,
        "ports": [{"containerPort": port, "name": name, "protocol": protocol} for name, port, protocol in (*_PORTS, *_PROBE_PORTS)],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "readiness-probe", "scheme": "HTTP"}},
        "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m", "memory": "70Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"mountPath": "/etc/coredns", "name": "config-volume", "readOnly": True}],
    }


def service(cluster: ClusterConfiguration) -> dict[str, Any]:
    """Return the Service at the tenth address of the service subnet. kubeadm sends it with a resourceVersion of 0."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "annotations": {"prometheus.io/port": str(_METRICS), "prometheus.io/scrape": "true"},
            "labels": {**_labels(), "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
            "name": SERVICE,
            "namespace": "kube-system",
            "resourceVersion": "0",
        },
        "spec": {
            "clusterIP": cluster_dns(cluster),
            "ports": [{"name": name, "port": port, "protocol": protocol, "targetPort": port} for name, port, protocol in _PORTS],
            "selector": _labels(),
        },
        "status": {"loadBalancer": {}},
    }
