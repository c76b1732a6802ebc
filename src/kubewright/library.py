"""kubewright for programs: the functions that the package exports in addition to its classes. Each is a few lines on top of other modules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kubewright.apis.kubeadm.loading import Loaded, load_init
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base.randomness import SystemRandom
from kubewright.kube.client import KubeClient
from kubewright.tokens.strings import BootstrapTokenString, generate

if TYPE_CHECKING:
    from kubewright.agent.node import NodeAgent
    from kubewright.agent.pods.provider import PodProvider


def generate_token() -> BootstrapTokenString:
    """Generate a bootstrap token. `str` of it hides the secret half; `.text` is the whole token."""
    return generate(SystemRandom())


def connect(kubeconfig: str | Path, *, context: str = "") -> KubeClient:
    """Make a client from a kubeconfig file, for its current context or a named one. The caller closes it; nothing is sent yet.

    Raises CertificateError for a missing file, DocumentError and ValidationError for an invalid one, UsageError for
    credentials that kubewright does not support (exec, auth-provider, passwords).
    """
    from kubewright.host.filesystem.files import Files
    from kubewright.kube.kubeconfigs import load_access

    return KubeClient(load_access(PurePosixPath(Path(kubeconfig).absolute()), read=Files().read, context=context))


def load_configuration(text: str | bytes = "", *, source: str = "configuration", detected: Detected | None = None) -> Loaded:
    """Load kubeadm documents (v1beta4), apply kubeadm's defaults and validate them: `.configuration` and `.warnings`.

    `detected` are the facts about the machine from which defaults are derived; if they are not given, those of this
    machine. Without any document, the configuration consists of defaults. Raises DocumentError if the documents
    cannot be identified, and ValidationError with all field errors.
    """
    from kubewright.base import yaml

    documents = yaml.load_all(text, source=source, recognise_json=True) if text else []
    return load_init(documents, detected=_this_machine() if detected is None else detected)


def render_static_pods(configuration: Configuration, *, detected: Detected | None = None) -> Mapping[str, dict[str, Any]]:
    """Return the static pods that kubeadm writes for a first control plane, by component: plain objects, in kubeadm's order.

    `detected` is as in `load_configuration`. If the configuration names an external etcd, there is no pod of etcd.
    `dump_yaml` of a pod returns the bytes of kubeadm's file.
    """
    from kubewright.manifests import static_pods

    cluster, endpoint = configuration.cluster, configuration.init.local_api_endpoint
    local = cluster.etcd.local
    layout = Layout().at(pki=cluster.certificates_dir, etcd_data=local.data_dir if local else None)
    addresses = Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
    facts = _this_machine() if detected is None else detected
    wanted = [name for name in static_pods.COMPONENTS if name != "etcd" or cluster.etcd.external is None]
    return {name: static_pods.render(name, configuration, layout, addresses, facts) for name in wanted}


def node_agent(
    name: str,
    *,
    directory: str | Path,
    bootstrap: str | Path,
    pods: PodProvider | None = None,
    address: str = "",
    labels: Mapping[str, str] | None = None,
) -> NodeAgent:
    """Make the agent of a node whose pods are run by your program: `await agent.run()` is a node until it is cancelled.

    `directory` keeps its certificates between runs; `bootstrap` is a kubeconfig that may request the first one, such
    as one with a bootstrap token. Without `pods` they are simulated. The node's address is detected and its machine
    is observed; if an `address` is given, it is used, and the machine is described only once. Raises ValidationError
    for a name, an address or labels that no node can have.
    """
    from kubewright.agent import library

    return library.node_agent(
        name, Path(directory), PurePosixPath(Path(bootstrap).absolute()), pods=pods, address=address, labels=labels or {}
    )


def _this_machine() -> Detected:
    from kubewright.host.real import RealHost

    return RealHost(layout=Layout()).facts.detected
