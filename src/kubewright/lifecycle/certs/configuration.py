"""The sources of the cluster's configuration for the `certs` commands (kubeadm v1.36: cmd/certs.go).

They are the file that is named, else the cluster, through a kubeconfig, else the defaults. An explicit certificate
directory overrides all of them, but only an explicit one: kubeadm's default value overrides the cluster's own directory
(kubernetes#110708).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubewright.apis.kubeadm.loading import Loaded, LoadedCluster, load_cluster, load_init
from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.apis.machine import Detected, Layout
from kubewright.base.errors import KubewrightError
from kubewright.base.events import Line, Reporter, Warned
from kubewright.base.level import KUBERNETES
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.base.yaml import Document
from kubewright.kube.api import KubeAPI
from kubewright.lifecycle import stored_configuration as stored_documents

Connect = Callable[[], KubeAPI | None]
"""Returns a client of the cluster; None if there is no kubeconfig. Raises KubewrightError for one that cannot be loaded."""


@dataclass(frozen=True, kw_only=True)
class GivenConfiguration:
    """The command line's values: `documents` of a file (None: no file), and the certificate directory ('' if not given)."""

    documents: Sequence[Document] | None = None
    cert_dir: str = ""


def cluster_configuration(
    asked: GivenConfiguration, *, connect: Connect, reporter: Reporter, topic: str, layout: Layout
) -> ClusterConfiguration:
    """Return the effective configuration: that of the file, or else of the cluster.

    Warnings about the file are reported. Raises as `of_file` does.
    """
    if asked.documents is None:
        return of_cluster(asked, connect=connect, reporter=reporter, topic=topic, layout=layout)
    loaded = of_file(asked, layout=layout)
    for warning in loaded.warnings:
        reporter.emit(Warned(text=warning))
    return loaded.cluster


def of_file(asked: GivenConfiguration, *, layout: Layout) -> LoadedCluster:
    """Load the configuration of the file. Raises what `load_cluster` raises."""
    return _loaded(asked.documents or (), asked, layout)


def of_cluster(asked: GivenConfiguration, *, connect: Connect, reporter: Reporter, topic: str, layout: Layout) -> ClusterConfiguration:
    """Return the configuration that the cluster stores.

    This is reported with the topic of the caller, followed by an empty line.

    A kubeconfig that cannot be loaded and a cluster that cannot be read are reported as well, and the defaults are used.
    """
    try:
        api = connect()
    except KubewrightError as error:
        reporter.emit(Warned(text=f"{error}; the defaults are used"))
        api = None
    if api is None:
        return _loaded((), asked, layout).cluster
    for text in stored_documents.READING:
        reporter.emit(Line(topic=topic, text=text))
    try:
        return _loaded([stored(api)], asked, layout).cluster
    except KubewrightError as error:
        reporter.emit(Line(topic=topic, text="Error reading the configuration from the cluster. Falling back to the defaults"))
        reporter.emit(Warned(text=str(error)))
        return _loaded((), asked, layout).cluster
    finally:
        reporter.emit(Line(topic="", text=""))


def stored(api: KubeAPI) -> Document:
    """Read the ClusterConfiguration that the cluster stores.

    Its version is replaced by ours: whether a version can be deployed does not matter for its certificates. Raises
    APIError and DocumentError.
    """
    found = stored_documents.document(api, stored_documents.KUBEADM_CONFIG)
    value = found.value if isinstance(found.value, dict) else {}
    return Document(value={**value, "kubernetesVersion": KUBERNETES}, source=found.source)


def _loaded(documents: Sequence[Document], asked: GivenConfiguration, layout: Layout) -> LoadedCluster:
    return load_cluster(documents, cert_dir=asked.cert_dir, from_file=asked.documents is not None, layout=layout)


def whole_configuration(asked: GivenConfiguration, *, detected: Detected, random: Random, layout: Layout) -> Loaded:
    """Return the whole configuration of this machine, for creating certificates from scratch: of a file, or the defaults.

    Raises what `load_init` raises.
    """
    return load_init(
        asked.documents or (),
        overrides=InitOverrides(cert_dir=asked.cert_dir or None),
        detected=detected,
        random=random,
        strict=False,
        validate_only=True,
        from_file=asked.documents is not None,
        layout=layout,
    )
