"""The phases `etcd/local` and `control-plane/*`: static pod manifests.

With the feature gate RootlessControlPlane also the users, owners of files and security contexts of their components
(kubeadm v1.36: util/staticpod/utils_linux.go).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final

from kubewright.apis.kubeadm import features
from kubewright.apis.kubeadm.types import ClusterConfiguration, Configuration
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.errors import DocumentError
from kubewright.base.events import Line, Reporter
from kubewright.base.records import dataclass
from kubewright.host.accounts import find_accounts
from kubewright.host.decisions import decide_file
from kubewright.host.desired import Directory, File
from kubewright.host.seam import Host
from kubewright.lifecycle.deferred_manifests import DeferredManifests
from kubewright.manifests import rootless, static_pods

Body = dict[str, Any]
MANIFEST_MODE = 0o600
PRIVATE = 0o700
NO_FLAGS: Final[Mapping[str, str]] = {}
HAS_DATA: Final[Mapping[str, str]] = {"initial-cluster-state": "existing"}
"""Flags of an etcd member that has data: it ignores them then.

Without data, it exits instead of creating an empty cluster.
"""
_FIRST_START: Final = ("--initial-cluster=", "--initial-cluster-state=")
ETCD: Final = "etcd"
_TOPIC: Final = "control-plane"
_DOING: Final = {Action.CREATE: "Creating the", Action.UPDATE: "Updating the", Action.NONE: "Using existing"}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of one machine's static pods.

    `overrides` returns the flags of a component that the machine changes.
    """

    configuration: Configuration
    layout: Layout
    addresses: Addresses
    detected: Detected
    overrides: Callable[[str], Mapping[str, str]]
    external_ca: bool

    @property
    def cluster(self) -> ClusterConfiguration:
        """The ClusterConfiguration."""
        return self.configuration.cluster

    def pod(self, name: str, *, more: Mapping[str, str] = NO_FLAGS) -> Body:
        """Return the static pod of a component, before patches. `more` are flags of this run only."""
        return static_pods.render(
            name,
            self.configuration,
            self.layout,
            self.addresses,
            self.detected,
            overrides={**self.overrides(name), **more},
            external_ca=self.external_ca,
        )


Patched = Callable[[str, Mapping[str, Any]], Body]
"""Returns the pod of a component with the user's patches for it."""


def manifest_directory(cluster: ClusterConfiguration, layout: Layout, *, host: Host, reporter: Reporter) -> Iterable[Change]:
    """Report the directory of manifests, and create it: a kubelet that starts without it looks again only after twenty seconds.

    Without root, it is created with the first manifest, because nothing must be created if the users of the components
    cannot be.
    """
    reporter.emit(Line(topic=_TOPIC, text=f'Using manifest directory "{layout.manifests}"'))
    if not features.enabled(cluster, features.ROOTLESS):
        yield host.ensure(Directory(path=layout.manifests, mode=PRIVATE))


def etcd(inputs: Inputs, *, host: Host, patched: Patched, manifests: DeferredManifests, reporter: Reporter) -> Iterable[Change]:
    """Create etcd's data directory and write its manifest."""
    yield host.ensure(Directory(path=inputs.layout.etcd_data, mode=PRIVATE))
    yield from write(ETCD, inputs, host=host, patched=patched, manifests=manifests, reporter=reporter)


def component(
    name: str, inputs: Inputs, *, host: Host, patched: Patched, manifests: DeferredManifests, reporter: Reporter
) -> Iterable[Change]:
    """Write the manifest of a component of the control plane."""
    yield from write(name, inputs, host=host, patched=patched, manifests=manifests, reporter=reporter)


def write(
    name: str,
    inputs: Inputs,
    *,
    host: Host,
    patched: Patched,
    manifests: DeferredManifests,
    reporter: Reporter,
    more: Mapping[str, str] = NO_FLAGS,
) -> Iterable[Change]:
    """Write the manifest of a static pod, now or when it may start, and report it.

    `more` are flags of this run only.
    """
    hardened, user = yield from harden(name, inputs.pod(name, more=more), inputs=inputs, host=host)
    content = yaml.dump(patched(name, hardened)).encode()
    manifest = File(path=inputs.layout.manifest(name), content=content, mode=MANIFEST_MODE, same=same_pod)
    action = decide_file(host.state(manifest.path), host.read(manifest.path), manifest).action
    what = f'local etcd in "{inputs.layout.manifests}"' if name == ETCD else f'"{name}"'
    for text in (f"{_DOING[action]} static pod manifest of {what}", *([user] if user else [])):
        reporter.emit(Line(topic=ETCD if name == ETCD else _TOPIC, text=text))
    yield host.ensure(Directory(path=inputs.layout.manifests, mode=PRIVATE))
    if not manifests.take(name, manifest):
        yield host.ensure(manifest)


def same_pod(found: bytes, wanted: bytes) -> bool:
    """Return whether the kubelet would create the same pod from two manifests, except for flags that an etcd with data ignores."""
    try:
        pods = [yaml.load(one, source="manifest") for one in (found, wanted)]
    except DocumentError:
        return False
    return _significant(pods[0]) == _significant(pods[1])


def unrunnable(pod: Mapping[str, Any]) -> list[str]:
    """Return why a kubelet would not create a static pod, by fields; empty if it would (kubernetes v1.36: pkg/apis/core/validation).

    These are the mistakes that a patch makes easily; the kubelet checks more. Types have been checked by the decoder.
    """
    spec = pod.get("spec") or {}
    containers = spec.get("containers") or []
    volumes = {one.get("name") for one in spec.get("volumes") or ()}
    found = [] if containers else ["spec.containers: Required value"]
    for index, container in enumerate(containers):
        at = f"spec.containers[{index}]"
        found += [f"{at}.{name}: Required value" for name in ("name", "image") if not container.get(name)]
        mounts = enumerate(container.get("volumeMounts") or ())
        found += [
            f'{at}.volumeMounts[{number}].name: Not found: "{one.get("name")}"' for number, one in mounts if one.get("name") not in volumes
        ]
    return found


def _significant(value: object) -> object:
    """Return the meaning of a manifest: without fields that have no effect, and without those for the first start of an etcd."""
    if isinstance(value, Mapping):
        return {key: meant for key, one in value.items() if (meant := _significant(one)) not in (None, {})}
    if isinstance(value, list):
        return [_significant(one) for one in value if not (isinstance(one, str) and one.startswith(_FIRST_START))]
    return value


def harden(name: str, pod: Body, *, inputs: Inputs, host: Host) -> Generator[Change, None, tuple[Body, str]]:
    """Yield the changes for a component that does not run as root, and return its pod and the message about its user.

    Without the gate, unchanged. If the users are only reported and not created, as in a dry run, there are no IDs, and
    the pod stays unchanged. Raises HostError for unsuitable accounts, and for missing files.
    """
    cluster, layout = inputs.cluster, inputs.layout
    if not features.enabled(cluster, features.ROOTLESS):
        return pod, ""
    wanted = rootless.accounts(layout)
    yield host.ensure(wanted)
    ids = find_accounts(host, layout.etc, wanted)
    if ids is None:
        return pod, f'Would update the static pod manifest of "{name}" to run as non-root'
    owning = rootless.Inputs(layout=layout, local_etcd=cluster.etcd.external is None, external_ca=inputs.external_ca)
    for owned in rootless.owners(name, owning, ids):
        yield host.ensure(owned)
    user = rootless.ROWS[name].user
    return rootless.hardened(name, pod, ids), f'"{name}" runs as the user {user} ({ids.users[user]})'
