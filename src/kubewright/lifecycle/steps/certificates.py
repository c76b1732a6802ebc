"""The phases `certs/*` and `kubeconfig/*`: reporting what is kept or created, and the files that all control planes of a cluster share."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.apis.machine import Layout
from kubewright.base.change import Action, Change
from kubewright.base.events import Line, Reporter, Warned
from kubewright.pki import ensure, kubeconfigs, specs, table
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.keys import Algorithm
from kubewright.pki.store import CertificateStore

_TOPIC: Final = "certs"
_SAID: Final = {
    (False, True, False): 'Generated "{}" certificate and key',
    (False, True, True): 'Generated "{}" certificate for the existing key',
    (False, False, True): 'Using existing "{}" certificate and key',
    (False, False, False): 'Using existing "{}" certificate',
    (True, True, False): 'Generated "{}" key and public key',
    (True, True, True): 'Using the existing "{0}" key, generated its public key {0}.pub',
    (True, False, True): 'Using the existing "{}" key',
}
"""The message for a certificate or (first) a key pair, by whether something was created and whether its key existed."""
_ALWAYS: Final = ("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key")
_LOCAL_ETCD: Final = ("etcd/ca.crt", "etcd/ca.key")


def certificate(
    spec: specs.CertificateSpec | specs.KeyPairSpec, *, store: CertificateStore, sources: IssuingSources, reporter: Reporter
) -> Change:
    """Keep or create a certificate or a key pair. Raises as `pki.ensure` does."""
    has_key = store.read(spec.key_file) is not None
    change = ensure.ensure(store, spec, sources)
    reporter.emit(Line(topic=_TOPIC, text=_SAID[isinstance(spec, specs.KeyPairSpec), bool(change), has_key].format(spec.base)))
    if change and isinstance(spec, specs.CertificateSpec) and table.Usage.SERVER in spec.usages:
        dns, ips = " ".join(spec.names.dns), " ".join(spec.names.ips)
        reporter.emit(Line(topic=_TOPIC, text=f"{spec.base} is for the names [{dns}] and the addresses [{ips}]"))
    if isinstance(spec, specs.CertificateSpec) and (warning := ensure.warning(store, spec, change, sources.clock.now())):
        reporter.emit(Warned(text=warning))
    return change


def kubeconfig(
    spec: specs.KubeconfigSpec, *, files: CertificateStore, certificates: CertificateStore, sources: IssuingSources, reporter: Reporter
) -> Change:
    """Keep or create a kubeconfig. `files` are those of the Kubernetes directory. Raises as `pki.kubeconfigs` does."""
    change = kubeconfigs.ensure_kubeconfig(files, certificates, spec, sources)
    done = "Wrote" if change.action is not Action.NONE else "Using existing"
    reporter.emit(Line(topic="kubeconfig", text=f'{done} "{spec.file}"'))
    if not change:
        for warning in kubeconfigs.warnings(spec, files.read(spec.file) or b"", sources.clock.now()):
            reporter.emit(Warned(text=warning))
    return change


def warn_of_signer(certificates: CertificateStore, *, now: datetime, reporter: Reporter) -> None:
    """Warn of a CA for kubeconfigs that is not valid now."""
    for warning in kubeconfigs.signer_warnings(certificates, now):
        reporter.emit(Warned(text=warning))


def missing_keys(wanted: Iterable[specs.CertificateSpec | specs.KeyPairSpec], store: CertificateStore) -> list[Algorithm]:
    """Return the algorithms of the missing keys, one for each."""
    return [spec.algorithm for spec in wanted if store.read(spec.key_file) is None]


def missing_kubeconfigs(wanted: Iterable[specs.KubeconfigSpec], files: CertificateStore) -> list[Algorithm]:
    """Return the algorithms of the keys of missing kubeconfigs, one for each."""
    return [spec.certificate.algorithm for spec in wanted if files.read(spec.file) is None]


def shared_files(cluster: ClusterConfiguration, layout: Layout) -> dict[str, PurePosixPath | None]:
    """Return the names and the paths of the files on a machine; None for a file of an external etcd that is not configured."""
    external = cluster.etcd.external
    names = _ALWAYS if external is not None else (*_ALWAYS, *_LOCAL_ETCD)
    places: dict[str, PurePosixPath | None] = {name.replace("/", "-"): layout.pki / name for name in names}
    if external is not None:
        given = {"external-etcd-ca.crt": external.ca_file, "external-etcd.crt": external.cert_file, "external-etcd.key": external.key_file}
        places |= {name: PurePosixPath(path) if path else None for name, path in given.items()}
    return places
