"""The manifests of our controllers, which run next to kube-controller-manager: a static pod, a Deployment, and their RBAC objects.

The Deployment does not run as root and reads the CA from a Secret. The static pod reads the control plane's files,
which belong to root: it runs as root without capabilities, as kubeadm's static pods do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.apis.machine import Layout
from kubewright.base.records import replace
from kubewright.manifests import node_policy, pods
from kubewright.manifests.pods import Flag, Inputs, Value, arguments, const
from kubewright.manifests.rbac import Purpose, Subject, grants, service_account
from kubewright.pki import specs, table
from kubewright.pki.specs import KubeconfigSpec

NAME: Final = table.CONTROLLERS.name
"""The name of the static pod, the user, the kubeconfig and the lease."""
CONTROLLERS: Final = "*,bootstrapsigner,tokencleaner"
APPROVER: Final = "servingapproving"
AUTHORITY_SECRET: Final = "kubewright-controllers-ca"  # noqa: S105 (no password: a name)
PORT: Final = 10257
"""The port of the Deployment's pods, which have their own addresses: kube-controller-manager's."""
STATIC_POD_PORT: Final = 10261
"""The port on a machine whose kube-controller-manager uses the other one."""
API_SERVER_PORTS: Final = (443, 6443)
_APPROVER_PORTS: Final = (("UDP", 53), ("TCP", 53), ("TCP", 10250))
"""DNS servers, for policies with `dns` and for the hosts of webhooks, and kubelets, for `callBack`. Webhooks usually have port 443."""
_SIGNING: Final = "cluster-signing-"
_AUTHORITY_PATH: Final = "/etc/kubewright/authority"
_LABELS: Final = {"app.kubernetes.io/name": NAME}
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_NOBODY: Final = 65532
"""The usual user of images without root."""
_CONFINED: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
_USER: Final = [Subject("User", NAME).document()]
_ACCOUNT: Final = Subject("ServiceAccount", NAME, pods.NAMESPACE)


def _kubeconfig(inputs: Inputs) -> Value:
    return inputs.layout.kubeconfig(NAME)


_COMMON: Final = (Flag("kubeconfig", _kubeconfig), Flag("leader-elect", const("true")))
FLAGS: Final[Mapping[Purpose, tuple[Flag, ...]]] = {
    Purpose.CONTROLLERS: (
        Flag("cluster-signing-cert-file", lambda c: "" if c.external_ca else c.layout.certificate("ca")),
        Flag("cluster-signing-key-file", lambda c: "" if c.external_ca else c.layout.key("ca")),
    ),
    Purpose.SERVING_APPROVER: (Flag("node-policy", const(node_policy.LOCATION)),),
}
"""The flags that each purpose needs."""
_SELECTION: Final = {Purpose.CONTROLLERS: CONTROLLERS, Purpose.SERVING_APPROVER: APPROVER}
_STOCK: Final = (Purpose.CONTROLLERS,)


def selection(purposes: Sequence[Purpose]) -> str:
    """Return the value of `--controllers` for these purposes."""
    return ",".join(_SELECTION[purpose] for purpose in purposes)


def static_pod(
    inputs: Inputs, *, program: Sequence[str], environment: Mapping[str, str], purposes: Sequence[Purpose] = _STOCK
) -> dict[str, Any]:
    """Return the static pod of a local cluster. `program` is the argument list that starts kubewright.

    It has no probes, because serving its health would need a port. The signing settings of kube-controller-manager in
    the user's configuration also apply to our controllers, which sign in its place.
    """
    signs = Purpose.CONTROLLERS in purposes
    extra_args = tuple(one for one in inputs.cluster.controller_manager.extra_args if signs and one.name.startswith(_SIGNING))
    flags = (*_COMMON, Flag("controllers", const(selection(purposes))), *(flag for purpose in purposes for flag in FLAGS[purpose]))
    command = [*program, "controllers", "run", *arguments(flags, replace(inputs, extra_args=extra_args))]
    extra = {"env": [{"name": name, "value": value} for name, value in sorted(environment.items())]} if environment else {}
    return _static_pod(inputs.layout, {"command": command, **extra, "image": "kubewright"}, purposes)


def machine_static_pod(
    layout: Layout, *, image: str, controllers: str = CONTROLLERS, purposes: Sequence[Purpose] = _STOCK
) -> dict[str, Any]:
    """Return the static pod of a control plane on a real machine.

    The kubeconfig at `layout.kubeconfig(NAME)` must exist. For the approver of serving certificates, the policy is in
    its ConfigMap. It listens next to kube-controller-manager, whose port is 10257, and like it on the loopback address
    only.
    """
    kubeconfig = str(layout.kubeconfig(NAME))
    flags = {
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "controllers": controllers,
        "kubeconfig": kubeconfig,
        "leader-elect": "true",
        "secure-port": str(STATIC_POD_PORT),
    }
    if Purpose.CONTROLLERS in purposes:
        flags |= {"cluster-signing-cert-file": str(layout.certificate("ca")), "cluster-signing-key-file": str(layout.key("ca"))}
    if Purpose.SERVING_APPROVER in purposes:
        flags["node-policy"] = node_policy.LOCATION
    # the image's own user may not read root's files
    context = {**_CONFINED, "runAsGroup": 0, "runAsUser": 0}
    container = {"command": _command(flags), "image": image, **_probes("127.0.0.1"), "securityContext": context}
    return _static_pod(layout, container, purposes, kubeconfig="File")


def _static_pod(
    layout: Layout, container: Mapping[str, Any], purposes: Sequence[Purpose], *, kubeconfig: str = pods.FILE
) -> dict[str, Any]:
    mounts = [pods.mounted("kubeconfig", layout.kubeconfig(NAME), kubeconfig)]
    if Purpose.CONTROLLERS in purposes:
        mounts.insert(0, pods.mounted("k8s-certs", layout.pki, pods.DIRECTORY))
    whole = {
        **container,
        "imagePullPolicy": "IfNotPresent",
        "name": NAME,
        "resources": {"requests": {"cpu": "50m"}},
        "volumeMounts": pods.mount_documents(mounts),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"component": NAME, "tier": "control-plane"}, "name": NAME, "namespace": pods.NAMESPACE},
        "spec": {
            "containers": [whole],
            "hostNetwork": True,
            "priority": 2000001000,
            "priorityClassName": "system-node-critical",
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": pods.volume_documents(mounts),
        },
        "status": {},
    }


def deployment(
    *,
    image: str,
    replicas: int = 2,
    controllers: str = CONTROLLERS,
    authority: str = AUTHORITY_SECRET,
    purposes: Sequence[Purpose] = _STOCK,
) -> list[dict[str, Any]]:
    """Return everything that runs the controllers in a cluster, in the order in which to create it.

    `purposes` determines the rights, and which objects of kube-system the pods wait for: for the stock controllers
    `authority`, a Secret of type kubernetes.io/tls with the CA; for the approver of serving certificates the ConfigMap
    `node_policy.NAME`.
    """
    made = _deployment(image, replicas, controllers, authority, purposes)
    return [service_account(NAME), *rights(_ACCOUNT, purposes), *stored(purposes), made, _budget(), _network_policy(purposes)]


def stored(purposes: Sequence[Purpose]) -> list[dict[str, Any]]:
    """Return the objects that the controllers change and may not create."""
    return [node_policy.used_tokens()] if Purpose.SERVING_APPROVER in purposes else []


def _deployment(image: str, replicas: int, controllers: str, authority: str, purposes: Sequence[Purpose]) -> dict[str, Any]:
    flags = {"controllers": controllers, "leader-elect": "true", "secure-port": str(PORT)}
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    if Purpose.CONTROLLERS in purposes:
        flags |= {"cluster-signing-cert-file": f"{_AUTHORITY_PATH}/tls.crt", "cluster-signing-key-file": f"{_AUTHORITY_PATH}/tls.key"}
        mounts.append({"name": "authority", "mountPath": _AUTHORITY_PATH, "readOnly": True})
        volumes.append({"name": "authority", "secret": {"secretName": authority, "defaultMode": 0o440}})
    if Purpose.SERVING_APPROVER in purposes:
        flags["node-policy"] = node_policy.LOCATION  # not a volume, in which a change would take a minute to arrive
    container = {
        "name": "controllers",
        "image": image,
        "command": _command(flags),
        "ports": [{"name": "https", "containerPort": PORT, "protocol": "TCP"}],
        **_probes(port="https"),
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": _CONFINED,
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": _LABELS},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
            "template": {"metadata": {"labels": _LABELS}, "spec": _on_control_planes(container, volumes)},
        },
    }


def _on_control_planes(container: Mapping[str, Any], volumes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the spec of a pod that runs on control planes, on different ones if possible, and not as root."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _LABELS},
    }
    return {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux", _CONTROL_PLANE: ""},
        "tolerations": [{"key": _CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [spread],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }


def _budget() -> dict[str, Any]:
    spec = {"minAvailable": 1, "selector": {"matchLabels": _LABELS}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _metadata(), "spec": spec}


def _network_policy(purposes: Sequence[Purpose]) -> dict[str, Any]:
    """Ingress: to the served port.

    Egress: to API servers, at their own ports or behind the Service, whose addresses need no DNS; for the approver of
    serving certificates also to the services that a policy may query.
    """
    ports = [*(("TCP", port) for port in API_SERVER_PORTS), *(_APPROVER_PORTS if Purpose.SERVING_APPROVER in purposes else ())]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(),
        "spec": {
            "podSelector": {"matchLabels": _LABELS},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": "https"}]}],
            "egress": [{"ports": [{"protocol": protocol, "port": port} for protocol, port in ports]}],
        },
    }


def _metadata() -> dict[str, Any]:
    return {"name": NAME, "namespace": pods.NAMESPACE, "labels": _LABELS}


def _command(flags: Mapping[str, str]) -> list[str]:
    return ["kubewright", "controllers", "run", *(f"--{name}={value}" for name, value in sorted(flags.items()))]


def _probes(host: str = "", *, port: str | int = STATIC_POD_PORT) -> dict[str, Any]:
    def probe(path: str, **more: int) -> dict[str, Any]:
        get = {**({"host": host} if host else {}), "path": path, "port": port, "scheme": "HTTPS"}
        return {"httpGet": get, "periodSeconds": 10, "timeoutSeconds": 15, **more}

    return {
        "livenessProbe": probe("/livez", failureThreshold=8, initialDelaySeconds=10),
        "readinessProbe": probe("/readyz", failureThreshold=3),
    }


def kubeconfig(inputs: Inputs) -> KubeconfigSpec:
    """Return the kubeconfig of the controllers: their own user, at this machine's API server."""
    row = table.CONTROLLERS
    server = specs.server(row.server, inputs.configuration, inputs.addresses)
    return specs.client_kubeconfig(name=row.name, common_name=row.common_name, server=server, cluster=inputs.cluster)


def rights(subject: Subject | None = None, purposes: Sequence[Purpose] = _STOCK) -> list[dict[str, Any]]:
    """Return the roles and bindings for these purposes. `subject` takes the place of the controllers' user."""
    found = [document for purpose in purposes for document in grants(purpose)]
    if subject is None:
        return found
    return [{**body, "subjects": [subject.document()]} if body.get("subjects") == _USER else body for body in found]
