"""The files that the `certs` commands work on: certificates, kubeconfigs, and what the kubelet keeps."""

from __future__ import annotations

from pathlib import PurePosixPath

from kubewright.base.records import dataclass
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.seam import Host
from kubewright.lifecycle.certs.rows import Renewable
from kubewright.pki.store import CertificateStore


@dataclass(frozen=True, kw_only=True)
class Places:
    """One machine's certificate directory and Kubernetes directory, as stores, and the machine for what lies elsewhere."""

    certificates: CertificateStore
    kubeconfigs: CertificateStore
    host: Host

    @classmethod
    def of(cls, host: Host, *, certificates: PurePosixPath, kubeconfigs: PurePosixPath | None = None) -> Places:
        """Return the places of a machine. Without `kubeconfigs` they are in the layout's Kubernetes directory."""
        return cls(
            certificates=HostCertificateStore(host, directory=certificates),
            kubeconfigs=HostCertificateStore(host, directory=kubeconfigs or host.layout.kubernetes),
            host=host,
        )

    def read(self, row: Renewable) -> bytes | None:
        """Return the file of a row; None where it is missing."""
        return (self.certificates if row.base else self.kubeconfigs).read(row.file)
