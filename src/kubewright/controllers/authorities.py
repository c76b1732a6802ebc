"""The CAs that sign, read again whenever their files change.

Source: kube-controller-manager v1.36: signer/ca_provider.go.

A new pair that cannot be read, or whose key does not match, is ignored and the old one stays in use. Only a file with
several certificates stops signing, until it contains a single one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import PurePosixPath

from kubewright.base.errors import CertificateError
from kubewright.controllers.requests import Retry
from kubewright.pki.requests import request_signing
from kubewright.pki.requests.request_signing import SeveralCertificates, SigningAuthority

_log = logging.getLogger(__name__)

ReadFile = Callable[[PurePosixPath], bytes | None]
"""Returns a file's content, None if there is no file: `Host.read`."""


class AuthorityFiles:
    """One pair of CA files. `load` has to succeed once at the start; afterwards `current` never raises."""

    def __init__(self, certificate: PurePosixPath, key: PurePosixPath, *, read: ReadFile) -> None:
        self._certificate = certificate
        self._key = key
        self._read = read
        self._contents: tuple[bytes, bytes] | None = None
        self._authority: SigningAuthority | Retry | None = None

    def load(self) -> None:
        """Read the pair for the first time. Raises CertificateError for files that are missing or unusable."""
        contents = self._files()
        self._authority = request_signing.load_authority(*contents, source=str(self._certificate))
        self._contents = contents

    def refresh(self) -> None:
        """Read the files, and use the pair in them if it is new and valid."""
        try:
            contents = self._files()
            if contents == self._contents:
                return
            self._authority = request_signing.load_authority(*contents, source=str(self._certificate))
        except SeveralCertificates as error:
            self._authority = Retry(reason=str(error))
        except CertificateError as error:
            _log.warning("the CA is unchanged: %s", error)
            return
        self._contents = contents
        _log.info("the certificate authority %s was read again", self._certificate)

    def current(self) -> SigningAuthority | Retry:
        """Return the CA as it was when the files were last read."""
        return self._authority if self._authority is not None else Retry(reason=f"{self._certificate} has not been read")

    def _files(self) -> tuple[bytes, bytes]:
        found = tuple(self._read(path) for path in (self._certificate, self._key))
        for path, content in zip((self._certificate, self._key), found, strict=True):
            if content is None:
                raise CertificateError(f"{path} does not exist", remedy="provide the CA's certificate and key")
        return found[0] or b"", found[1] or b""


def ends(authority: SigningAuthority | Retry) -> datetime | Retry:
    """Return when the CA expires, or why there is none."""
    return authority if isinstance(authority, Retry) else authority.not_after
