"""The phase `control-plane-prepare/download-certs`: what control planes share, from the Secret kubeadm-certs (spec/kubeadm.md 7.3)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.base.change import Change
from kubewright.base.errors import CertificateError, Forbidden, NotFound
from kubewright.host.desired import File, Show
from kubewright.kube.resources import named
from kubewright.lifecycle.join import reading
from kubewright.lifecycle.steps.shared_files import shared_files
from kubewright.pki import certificates, keys, sealing, store
from kubewright.pki.store import CERTIFICATE_MODE, KEY_MODE, MemoryStore

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

TOPIC: Final = "download-certs"
SECRET: Final = "kubeadm-certs"  # noqa: S105 - a name
NAMESPACE: Final = "kube-system"
_AGAIN: Final = (
    "upload them again with `kubeadm init phase upload-certs --upload-certs` on a control plane, and join with the key that it prints"
)


def download_certs(ctx: JoinContext) -> Iterable[Change]:
    """Write what the Secret holds, all of it or nothing. Nothing to do without a certificate key.

    A join that goes on after it was interrupted keeps the files that it has: by then the Secret may be gone.
    Raises CertificateError for a Secret that is missing or incomplete, a wrong key, and content that is no certificate or key.
    """
    key = ctx.configuration.init.certificate_key
    places = shared_files(ctx.cluster, ctx.layout)
    if not key:
        return
    if ctx.resumed and all(ctx.host.state(path) is not None for path in places.values() if path):
        ctx.say(TOPIC, "The certificates are here already")
        return
    ctx.say(TOPIC, f'Downloading the certificates in Secret "{SECRET}" in the "{NAMESPACE}" Namespace')
    opened = _opened(_secret(ctx), sealing.parse_key(key), names=list(places))
    _require_usable(opened)
    ctx.say(TOPIC, f'Saving the certificates to the folder: "{ctx.layout.pki}"')
    for name, content in opened.items():
        path = places[name]
        if content and path is not None:
            yield ctx.host.ensure(_file(path, content))


def _secret(ctx: JoinContext) -> Mapping[str, Any]:
    try:
        return reading.patiently(ctx, lambda: ctx.bootstrap.get(named("Secret"), SECRET, NAMESPACE))
    except NotFound as error:
        raise CertificateError(
            f"the Secret {NAMESPACE}/{SECRET} is not there",
            detail="it is deleted two hours after it was made, and with the token that owns it",
            remedy=_AGAIN,
        ) from error
    except Forbidden as error:
        raise CertificateError(
            f"the Secret {NAMESPACE}/{SECRET} may not be read",
            detail=str(error),
            remedy=f"join with a token of the group for joining nodes; or {_AGAIN}",
        ) from error


def _opened(secret: Mapping[str, Any], key: bytes, *, names: list[str]) -> dict[str, bytes]:
    """Decrypt every value. An empty one is a file that the uploading machine had not."""
    data = secret.get("data") or {}
    missing = [name for name in names if name not in data]
    if missing:
        raise CertificateError(f"the Secret {NAMESPACE}/{SECRET} lacks {', '.join(missing)}", remedy=_AGAIN)
    opened = {}
    for name in names:
        try:
            sealed = base64.b64decode(data[name] or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise CertificateError(f"{name} of the Secret {NAMESPACE}/{SECRET} cannot be read", remedy=_AGAIN) from error
        opened[name] = sealing.unseal(sealed, key, name=name) if sealed else b""
    return opened


def _require_usable(opened: Mapping[str, bytes]) -> None:
    """Require that every value is what its name says, and that certificates and keys of authorities fit."""
    for name, content in opened.items():
        if content:
            _READ[PurePosixPath(name).suffix](content, source=f"{name} of the Secret {SECRET}")
    found = MemoryStore({name.replace("etcd-", "etcd/"): content for name, content in opened.items() if content})
    for base in ("ca", "front-proxy-ca", "etcd/ca"):
        store.load_authority(found, base)


_READ: Final = {".crt": certificates.parse, ".key": keys.load, ".pub": keys.load_public}


def _file(path: PurePosixPath, content: bytes) -> File:
    mode = KEY_MODE if path.suffix == ".key" or b"PRIVATE KEY-----" in content else CERTIFICATE_MODE
    return File(path=path, content=content, mode=mode, show=Show.SIZE)
