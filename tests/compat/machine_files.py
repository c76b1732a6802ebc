"""How files of two machines are compared: by bytes, or by the fields of certificates, keys and kubeconfigs, which differ from run to run."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arena import Answer, File

import certificate_summaries as summaries
from kubewright.base import yaml
from kubewright.pki import certificates, keys
from kubewright.pki.encoding import pem


@dataclass
class Description:
    """Every file by what is the same in every run, and the lifetimes of certificates in seconds."""

    files: dict[str, object] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)

    def differences(self, other: Description, *, within: float) -> list[str]:
        """Name the files that differ. Lifetimes may differ by the seconds `within` which both were written (`between`)."""
        paths = sorted(self.files.keys() | other.files.keys())
        found = [path for path in paths if self.files.get(path) != other.files.get(path)]
        return found + [path for path, life in self.lives.items() if path not in found and abs(life - other.lives[path]) > within + 2]


def between(one: Answer, other: Answer) -> float:
    """Return the seconds in which both machines were made.

    A certificate starts with its CA and expires counted from its own signing, so its lifetime depends on the speed of a run.
    """
    return max(one.ended, other.ended) - min(one.began, other.began)


def describe(files: Mapping[str, File]) -> Description:
    found = Description()
    for path, entry in sorted(files.items()):
        found.files[path] = (
            entry.kind,
            oct(entry.mode),
            entry.owner,
            _content(path, entry, files, found) if entry.kind == "file" else None,
        )
    return found


def _content(path: str, entry: File, files: Mapping[str, File], found: Description) -> object:
    if path.endswith(".crt"):
        key = files.get(path.removesuffix(".crt") + ".key")
        return {**_certificate(path, entry.content, files, found), "fits": key is not None and _fit(entry.content, key.content)}
    if path.endswith(".key"):
        return summaries.of_key(entry.content, source=path)
    if path.endswith(".pub"):
        private = keys.load(files[path.removesuffix(".pub") + ".key"].content, source=path)
        return {"fits": keys.load_public(entry.content, source=path) == [private.public_der()]}
    if path.endswith(".csr"):
        request = summaries.of_request(entry.content)
        return {name: getattr(request, name) for name in ("subject", "names", "extensions", "key_kind", "signature_valid")}
    if path.endswith(".conf"):
        return _kubeconfig(path, entry.content, files, found)
    return entry.content.decode()


def _certificate(path: str, text: bytes, files: Mapping[str, File], found: Description) -> dict[str, Any]:
    authorities = {name: certificates.parse(file.content)[0] for name, file in files.items() if name.endswith("ca.crt")}
    shown = summaries.of_certificate(certificates.parse(text)[0], authorities=authorities)
    life = shown.pop("validity_seconds")
    assert isinstance(life, int)
    found.lives[path] = life
    return {"blocks": [block.label for block in pem.blocks(text, source=path)], **shown}


def _fit(certificate: bytes, key: bytes) -> bool:
    return certificates.fits(certificates.parse(certificate)[0], keys.load(key, source="key"))


def _kubeconfig(path: str, text: bytes, files: Mapping[str, File], found: Description) -> object:
    document: Any = yaml.load(text)
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    if "certificate-authority-data" in cluster:
        authority = base64.b64decode(cluster["certificate-authority-data"])
        cluster["certificate-authority-data"] = [
            name for name, file in files.items() if name.endswith(".crt") and file.content == authority
        ]
    if "client-key-data" not in user:  # a token, which both were given
        return {"order": list(document), "document": document}
    key = base64.b64decode(user["client-key-data"])
    user["client-key-data"] = summaries.of_key(key, source=path)
    if "client-certificate-data" in user:
        certificate = base64.b64decode(user["client-certificate-data"])
        user["client-certificate-data"] = {**_certificate(path, certificate, files, found), "fits": _fit(certificate, key)}
    return {"order": list(document), "document": document}
