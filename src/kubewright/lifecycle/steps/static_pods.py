"""The phases `etcd/local` and `control-plane/*`: static pod manifests.

With the feature gate RootlessControlPlane also the users, owners of files and security contexts of their components (kubeadm v1.36: util/staticpod/utils_linux.go).
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
"""Flags of a member of etcd that has data: with it they say nothing; without it, it ends instead of making an empty cluster of its own."""
_FIRST_START: Final = ("--initial-cluster=", "--initial-cluster-state=")
ETCD: Final = "etcd"
_TOPIC: Final = "control-plane"
_DOING: Final = {Action.CREATE: "Creating the", Action.UPDATE: "Updating the", Action.NONE: "Using existing"}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the static pods of one machine are made from. `overrides` gives the flags of a component that the machine changes."""

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
        """Return the static pod of a component, as it is before patches. `more` are flags that only this run knows."""
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
    """Say where manifests go, and make the directory: a kubelet that starts without it looks again only after twenty seconds.

    Without root, it comes with the first manifest, as nothing must be made where the users of the components cannot be.
    """
    reporter.emit(Line(topic=_TOPIC, text=f'Using manifest directory "{layout.manifests}"'))
    if not features.enabled(cluster, features.ROOTLESS):
        yield host.ensure(Directory(path=layout.manifests, mode=PRIVATE))


def etcd(inputs: Inputs, *, host: Host, patched: Patched, manifests: DeferredManifests, reporter: Reporter) -> Iterable[Change]:
    """Make etcd's data directory and write its manifest."""
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
    """Write the manifest of a static pod, now or when it may start, and say so. `more` are flags that only this run knows."""
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
    """Return whether the kubelet would make the same pod of two manifests, up to flags with which an etcd that has data does nothing."""
    try:
        pods = [yaml.load(one, source="manifest") for one in (found, wanted)]
    except DocumentError:
        return False
    return _meant(pods[0]) == _meant(pods[1])


def _meant(value: object) -> object:
    """Return what a manifest means: without fields that say nothing, and without what only the first start of an etcd needs."""
    if isinstance(value, Mapping):
        return {key: meant for key, one in value.items() if (meant := _meant(one)) not in (None, {})}
    if isinstance(value, list):
        return [_meant(one) for one in value if not (isinstance(one, str) and one.startswith(_FIRST_START))]
    return value


def harden(name: str, pod: Body, *, inputs: Inputs, host: Host) -> Generator[Change, None, tuple[Body, str]]:
    """Yield what is done for a component that does not run as root, and return its pod, and what to say of its user; without the gate, as it is.

    Where the users are only told and not made, as in a dry run, there are no numbers, and the pod stays as it is.
    Raises HostError for accounts that do not fit, and for files that are not there.
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
