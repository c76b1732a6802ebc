"""The cluster of a command: that of the kubeconfig in its flags, otherwise that of the first existing one."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from kubewright.apis.machine import Layout
from kubewright.base.errors import CertificateError
from kubewright.cli.parsing.inputs import absolute
from kubewright.host.filesystem.files import Files
from kubewright.http.proxies import Proxies
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import default_paths, first_existing, load_access


def of_user(given: str) -> Access:
    """Return the access of the given kubeconfig; by default, of the first existing one in $KUBECONFIG (or ~/.kube/config), or admin.conf.

    This is kubeadm's rule for `token` (kubeadm v1.36: cmd/token.go). Raises CertificateError if there is none.
    """
    read = Files().read
    if given:
        return load_access(_path(given), read=read)
    home = os.environ.get("HOME", "")
    candidates = default_paths(os.environ, home=PurePosixPath(home) if home.startswith("/") else None)
    chosen = first_existing((*(_path(str(path)) for path in candidates), Layout().kubeconfig("admin")), read=read)
    return load_access(chosen, read=read)


def of_file(path: str) -> KubeClient | None:
    """Return a client for a kubeconfig; None if the file does not exist.

    Raises DocumentError and ValidationError for an invalid one.
    """
    place = _path(path)
    try:
        return client(load_access(place, read=Files().read))
    except CertificateError:
        return None


def client(access: Access) -> KubeClient:
    """Return a client that goes through the proxies of the environment."""
    return KubeClient(access, proxies=Proxies.from_environment(os.environ))


def _path(given: str) -> PurePosixPath:
    return PurePosixPath(absolute(given))
