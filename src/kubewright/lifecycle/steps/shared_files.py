"""What all control planes of a cluster have in common, by its names in the Secret kubeadm-certs (spec/kubeadm.md 7.3)."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.apis.machine import Layout

_ALWAYS: Final = ("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key")
_LOCAL_ETCD: Final = ("etcd/ca.crt", "etcd/ca.key")


def shared_files(cluster: ClusterConfiguration, layout: Layout) -> dict[str, PurePosixPath | None]:
    """Return the names and where the files lie on a machine; None for a file of an external etcd that is not configured."""
    external = cluster.etcd.external
    names = _ALWAYS if external is not None else (*_ALWAYS, *_LOCAL_ETCD)
    places: dict[str, PurePosixPath | None] = {name.replace("/", "-"): layout.pki / name for name in names}
    if external is not None:
        given = {"external-etcd-ca.crt": external.ca_file, "external-etcd.crt": external.cert_file, "external-etcd.key": external.key_file}
        places |= {name: PurePosixPath(path) if path else None for name, path in given.items()}
    return places
