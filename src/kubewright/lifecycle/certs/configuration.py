"""Where the `certs` commands take the cluster's configuration from (kubeadm v1.36: cmd/certs.go).

A file that is named; else the cluster, through a kubeconfig; without that the defaults. A certificate directory that is given counts more
than any of them, and only if it is given: kubeadm's default value overrides the cluster's own directory (kubernetes#110708).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubewright.apis.kubeadm.loading import load_cluster, load_init
from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.apis.kubeadm.types import ClusterConfiguration, Configuration
from kubewright.apis.machine import Detected, Layout
from kubewright.base.errors import KubewrightError
from kubewright.base.events import Line, Reporter, Warned
from kubewright.base.level import KUBERNETES
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.base.yaml import Document
from kubewright.kube.api import KubeAPI
from kubewright.lifecycle import stored_configuration as stored_documents

NAME: Final = "kubeadm-config"
NAMESPACE: Final = "kube-system"

Connect = Callable[[], KubeAPI | None]
"""Gives a client of the cluster; None where no kubeconfig can be loaded."""


@dataclass(frozen=True, kw_only=True)
class GivenConfiguration:
    """What the command line says: `documents` of a file (None: no file), and the certificate directory ('' if not given)."""

    documents: Sequence[Document] | None = None
    cert_dir: str = ""


def cluster_configuration(
    asked: GivenConfiguration, *, connect: Connect, reporter: Reporter, topic: str, layout: Layout
) -> ClusterConfiguration:
    """Return the configuration that counts. Where it is the cluster's, that is reported with the topic of the caller, and an empty line after it.

    Raises what `load_init` raises for a file. A cluster that cannot be read is told, and the defaults are taken.
    """
    if asked.documents is not None:
        return _loaded(asked.documents, asked, reporter, layout)
    api = connect()
    if api is None:
        return _loaded([], asked, reporter, layout)
    reporter.emit(Line(topic=topic, text=f'Reading the configuration from the ConfigMap "{NAME}" in namespace "{NAMESPACE}"...'))
    reporter.emit(Line(topic=topic, text="Use 'kubewright init phase upload-config kubeadm --config FILE' to upload it again."))
    try:
        return _loaded([stored(api)], asked, reporter, layout)
    except KubewrightError as error:
        reporter.emit(Line(topic=topic, text="Error reading the configuration from the cluster. Falling back to the defaults"))
        reporter.emit(Warned(text=str(error)))
        return _loaded([], asked, reporter, layout)
    finally:
        reporter.emit(Line(topic="", text=""))


def stored(api: KubeAPI) -> Document:
    """Read the ClusterConfiguration that the cluster keeps.

    Its version is taken as ours: which versions can be deployed is no question of their certificates. Raises APIError and DocumentError.
    """
    found = stored_documents.document(api, stored_documents.KUBEADM_CONFIG)
    value = found.value if isinstance(found.value, dict) else {}
    return Document(value={**value, "kubernetesVersion": KUBERNETES}, source=found.source)


def _loaded(documents: Sequence[Document], asked: GivenConfiguration, reporter: Reporter, layout: Layout) -> ClusterConfiguration:
    loaded = load_cluster(documents, cert_dir=asked.cert_dir, from_file=asked.documents is not None, layout=layout)
    for warning in loaded.warnings if asked.documents is not None else ():
        reporter.emit(Warned(text=warning))
    return loaded.cluster


def whole_configuration(
    asked: GivenConfiguration, *, detected: Detected, random: Random, reporter: Reporter, layout: Layout
) -> Configuration:
    """Return everything about this machine, for certificates that are made from nothing: of a file, or the defaults.

    Raises what `load_init` raises.
    """
    loaded = load_init(
        asked.documents or (),
        overrides=InitOverrides(cert_dir=asked.cert_dir or None),
        detected=detected,
        random=random,
        strict=False,
        validate_only=True,
        from_file=asked.documents is not None,
        layout=layout,
    )
    for warning in loaded.warnings:
        reporter.emit(Warned(text=warning))
    return loaded.configuration
