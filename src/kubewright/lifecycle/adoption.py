"""Taking over machines that another tool made members of a cluster: a plan is always possible, changes are made only on request.

The origin is determined by observation: any tool that started the kubelet has left kubelet.conf and the kubelet's
configuration, and kubewright would have left its record as well. The cluster is read with an administrator's
kubeconfig, which must exist, be valid, and belong to this cluster: without one, a plan would treat the cluster as
empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import CertificateError, ConfigurationChanged, HostError
from kubewright.base.events import Line, Reporter
from kubewright.host.seam import Host
from kubewright.kube.credentials import Access, ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.pki import certificates, pins

if TYPE_CHECKING:
    from kubewright.workflow.runner import Plan

TOPIC: Final = "adopt"
STORED: Final = "configmap kube-system/kubeadm-config"
"""The change target for a cluster's stored configuration: if it differs, the given configuration is of another cluster."""
_COMPONENTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def traces(host: Host) -> tuple[PurePosixPath, ...]:
    """Return the files that show that another tool created this machine; none for a fresh machine or one of ours."""
    layout = host.layout
    if host.state(layout.machine_record) is not None:
        return ()
    started = (layout.kubeconfig("kubelet"), layout.kubelet_config)
    if any(host.state(path) is None for path in started):
        return ()
    more = (layout.kubelet_instance_config, *map(layout.manifest, _COMPONENTS))
    return (*started, *(path for path in more if host.state(path) is not None))


def check(host: Host, *, adopts: bool, may: bool = True, plan: Callable[[], Plan], reporter: Reporter) -> bool:
    """Return whether this run takes over the machine.

    If so, the changes that `plan` returns are shown first. `may`: the command has --adopt. Raises HostError for a
    machine that another tool created, unless the user `adopts` it, and ConfigurationChanged if its cluster has another
    configuration.
    """
    found = traces(host)
    if not found:
        return False
    if not adopts:
        raise _foreign(found, may=may)
    changes = plan()
    _require_same_cluster(changes.changes)
    text = changes.text() or "no changes: the configuration is that of this machine"
    reporter.emit(Line(topic=TOPIC, text=f"Taking over this machine, which kubewright did not make:\n{text.rstrip()}"))
    return True


def _require_same_cluster(changes: Iterable[Change]) -> None:
    for change in changes:
        if change.target == STORED and change.action is Action.UPDATE:
            raise ConfigurationChanged(
                "the cluster of this machine was created with another configuration",
                detail=change.diff,
                remedy="use the configuration of the cluster (`kubewright config diff` shows the difference); nothing was changed",
            )


def _foreign(found: Iterable[PurePosixPath], *, may: bool) -> HostError:
    takes = (
        "review the changes with --plan, then take the machine over with --adopt; or undo the earlier installation with `kubewright reset`"
    )
    return HostError(
        "this machine is part of a cluster, but kubewright did not set it up",
        detail="\n".join(f"{path} is there" for path in found),
        remedy=takes if may else "remove it from that cluster (`kubewright reset`), then run the same command again",
    )


def load_administrator(host: Host, path: PurePosixPath, *, now: datetime) -> Access:
    """Read an administrator's kubeconfig.

    Raises HostError if it is missing, CertificateError for an unsuitable one, and as `load_access`.
    """
    if host.state(path) is None:
        raise HostError(
            f"{path} does not exist, and without it the cluster of this machine cannot be read",
            remedy="make it with `kubewright init phase kubeconfig admin` and the configuration of the cluster, if the key of its CA is on "
            "this machine; or copy it from another control-plane node; then run the same command again",
        )
    access = load_access(path, read=host.read)
    _require_valid(access, path, now=now)
    _require_own(host, access, path)
    return access


def _require_valid(access: Access, path: PurePosixPath, *, now: datetime) -> None:
    if not isinstance(access.identity, ClientCertificate):
        return
    certificate = certificates.parse(access.identity.cert_pem, source=str(path))[0]
    if not certificate.not_before <= now <= certificate.not_after:
        raise CertificateError(
            f"the client certificate of {path} cannot be used: {certificates.expiry(certificate, now)}",
            remedy=f"renew it with `kubewright certs renew {path.name}`, and check the clock; then run the same command again",
        )


def _require_own(host: Host, access: Access, path: PurePosixPath) -> None:
    """Compare the CA with that of this machine, if both exist.

    Only keys are compared, because a CA may have been renewed with its own key.
    """
    own_path = host.layout.certificate("ca")
    own = host.read(own_path)
    if own is None or access.ca_pem is None:
        return
    if not pins.matches(pins.of_bundle(access.ca_pem, source=str(path)), pins.of_bundle(own, source=str(own_path))):
        raise CertificateError(
            f"{path} belongs to another cluster than this machine: it trusts another CA than {own_path}",
            remedy="move it away, and create a new one with `kubewright init phase kubeconfig admin`, or copy it from a control-plane node of this cluster",
        )
