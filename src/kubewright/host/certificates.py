"""A host's directory of certificates or kubeconfigs, as pki uses it."""

from __future__ import annotations

from pathlib import PurePosixPath

from kubewright.base.change import Change
from kubewright.base.errors import HostError
from kubewright.base.messages import quoted
from kubewright.host.desired import File, Show
from kubewright.host.seam import Host


class HostCertificateStore:
    """A `pki.store.CertificateStore` over a host: names such as `ca.crt` or `etcd/server.key` below `directory`.

    If `directory` is None, the layout's PKI directory is used.
    """

    def __init__(self, host: Host, *, directory: PurePosixPath | None = None) -> None:
        self._host = host
        self._directory = host.layout.pki if directory is None else directory

    def read(self, name: str, /) -> bytes | None:
        return self._host.read(self._path(name))

    def write(self, name: str, content: bytes, /, *, mode: int) -> Change:
        return self._host.ensure(File(path=self._path(name), content=content, mode=mode, show=Show.MADE))

    def _path(self, name: str) -> PurePosixPath:
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts or not relative.name:
            raise HostError(f"{quoted(name)} is not the name of a certificate file", remedy="names are like ca.crt or etcd/server.key")
        return self._directory / relative
