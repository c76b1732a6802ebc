"""Our controllers beside kube-controller-manager: their static pod, and the rights of the user that they are (spec/controllers.md 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.manifests import pods
from kubewright.manifests.pods import Flag, Inputs, Value, arguments, const
from kubewright.manifests.rbac import Purpose, grants
from kubewright.pki import specs, table
from kubewright.pki.specs import KubeconfigSpec

NAME: Final = "kubewright-controllers"
"""Of the static pod, the user, the kubeconfig and the lease."""
CONTROLLERS: Final = "*,bootstrapsigner,tokencleaner"


def _kubeconfig(inputs: Inputs) -> Value:
    return inputs.layout.kubeconfig(NAME)


FLAGS: Final = (
    Flag("cluster-signing-cert-file", lambda c: "" if c.external_ca else c.layout.certificate("ca")),
    Flag("cluster-signing-key-file", lambda c: "" if c.external_ca else c.layout.key("ca")),
    Flag("controllers", const(CONTROLLERS)),
    Flag("kubeconfig", _kubeconfig),
    Flag("leader-elect", const("true")),
)


def static_pod(inputs: Inputs, *, program: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the static pod. `program` is the words that call kubewright; it has no probes: what it serves of its health needs a port."""
    mounts = [
        pods.mounted("k8s-certs", inputs.layout.pki, pods.DIRECTORY),
        pods.mounted("kubeconfig", inputs.layout.kubeconfig(NAME), pods.FILE),
    ]
    container = {
        "command": [*program, "controllers", "run", *arguments(FLAGS, inputs)],
        **({"env": [{"name": name, "value": value} for name, value in sorted(environment.items())]} if environment else {}),
        "image": "kubewright",
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
            "containers": [container],
            "hostNetwork": True,
            "priority": 2000001000,
            "priorityClassName": "system-node-critical",
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": pods.volume_documents(mounts),
        },
        "status": {},
    }


def kubeconfig(inputs: Inputs) -> KubeconfigSpec:
    """Return the kubeconfig of the controllers: a user of their own, at this machine's API server."""
    server = specs.server(table.Endpoint.LOCAL, inputs.configuration, inputs.addresses)
    return specs.client_kubeconfig(name=NAME, common_name=NAME, server=server, cluster=inputs.cluster)


def rights() -> list[dict[str, Any]]:
    """Return the roles and bindings of the controllers' user."""
    return grants(Purpose.CONTROLLERS)
