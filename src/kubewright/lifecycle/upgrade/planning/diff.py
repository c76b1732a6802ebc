"""`upgrade diff`: compares static pods with those that an upgrade would write (kubeadm v1.36: cmd/upgrade/diff.go)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from kubewright.apis import formats
from kubewright.apis.kubeadm.loading import load_init
from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Layout
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, HostError
from kubewright.base.records import replace
from kubewright.base.yaml import Document
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.seam import Host
from kubewright.lifecycle import patch_directory
from kubewright.lifecycle.upgrade.planning.versions import API_SERVER, CONTROL_PLANE
from kubewright.manifests import static_pods
from kubewright.pki import store


def manifests(host: Host) -> dict[str, str]:
    """Read the manifests of the control plane. Raises HostError with the first one that does not exist."""
    found = {}
    for name in CONTROL_PLANE:
        path = host.layout.manifest(name)
        content = host.read(path)
        if content is None:
            raise HostError(f'the manifest "{path}" is not there', remedy="run this on a control plane")
        found[name] = content.decode(errors="replace")
    return found


def configuration(stored: Document, present: dict[str, str], *, version: str, host: Host, patches: str = "") -> Configuration:
    """Return the cluster's configuration with another version, this machine's endpoint, and a directory of patches.

    Raises as `load_init` does, and DocumentError if the API server's manifest does not contain the endpoint.
    """
    address, port = local_endpoint(present[API_SERVER], source=str(host.layout.manifest(API_SERVER)))
    value = {**stored.value, "kubernetesVersion": version} if isinstance(stored.value, dict) else stored.value
    found = load_init(
        [Document(value=value, source=stored.source)],
        overrides=InitOverrides(advertise_address=address, bind_port=port),
        detected=host.facts.detected,
        strict=False,
        validate_only=True,
        from_file=True,
        allow_loopback_advertise=True,
    ).configuration
    return replace(found, init=replace(found.init, patches_directory=patches))


def differences(found: Configuration, present: dict[str, str], *, host: Host, context: int) -> Iterator[str]:
    """Yield a unified diff for each manifest that an upgrade would change. `host` has the layout of the configuration.

    The patches of the configuration are applied, unlike in kubeadm. Raises as `patch_directory.read` does.
    """
    endpoint = found.init.local_api_endpoint
    addresses = Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
    external = store.is_external(HostCertificateStore(host, directory=host.layout.pki))
    patches = patch_directory.read(host, found, say=lambda _: None, user=host.facts.user)
    for name, old in present.items():
        pod = patches.apply(name, static_pods.render(name, found, host.layout, addresses, host.facts.detected, external_ca=external))
        path = str(host.layout.manifest(name))
        yield "".join(difflib.unified_diff(_lines(old), _lines(yaml.dump(pod)), path, "new manifest", n=context))


def layout_of(found: Configuration, layout: Layout) -> Layout:
    """Return the layout with the directories of the configuration."""
    local = found.cluster.etcd.local
    return layout.at(pki=found.cluster.certificates_dir, etcd_data=local.data_dir if local else None)


def _lines(text: str) -> list[str]:
    """Split a text as kubeadm's diff library does: the text after the last line feed is a line, even if it is empty."""
    return [f"{line}\n" for line in text.split("\n")]


def local_endpoint(manifest: str, *, source: str) -> tuple[str, int]:
    """Return address and port of the API server from its manifest. Raises DocumentError if they are missing."""
    pod = yaml.load(manifest, source=source)
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    endpoint = annotations.get(static_pods.ENDPOINT) if isinstance(annotations, dict) else None
    address, _, port = str(endpoint or "").rpartition(":")
    if not address or not formats.is_port(port):
        raise DocumentError(
            f"{source} does not contain the local API endpoint",
            detail=f"no annotation {static_pods.ENDPOINT}",
            remedy="restore the manifest",
        )
    return address.strip("[]"), int(port)
