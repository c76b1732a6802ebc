"""Readers of flags whose values are files, CIDRs or versions. Their dependencies are imported only for such flags."""

from __future__ import annotations

from pathlib import PurePosixPath

from kubewright.base.errors import CertificateError, DocumentError, UsageError


def content(path: str, *, flag: str) -> str:
    """Return the content of a file, '' without one. Raises CertificateError for one that does not exist."""
    found = _read(path) if path else ""
    if found is None:
        raise CertificateError(f"{path} does not exist", remedy=f"check --{flag}")
    return found


def fields(path: str) -> dict[str, object]:
    """Return the map in a YAML file, with JSON's types only; an empty one without a file. Raises DocumentError."""
    import json

    from kubewright.base import yaml
    from kubewright.base.plain_text import require_one_line_each

    if not path:
        return {}
    text = _read(path)
    found = yaml.load(text, source=path) if text is not None else None
    if not isinstance(found, dict):
        raise DocumentError(f"{path} contains no fields", remedy="write fields of a KubeletConfiguration, such as failCgroupV1: false")
    result: dict[str, object] = json.loads(json.dumps(found, default=str))
    require_one_line_each(result, what=path)
    return result


def ranges(given: object, *, flag: str) -> object:
    """Return one CIDR or several as they were written. Raises UsageError for anything else."""
    from kubewright.apis import formats

    try:
        for text in given if isinstance(given, tuple) else (given,):
            formats.subnets(str(text))
    except ValueError as error:
        raise UsageError(f"--{flag}: {error}", remedy="write a range like 10.96.0.0/12") from error
    return () if given is None else given


def version(text: str, *, flag: str) -> str:
    """Return a version, '' without one. Raises UsageError for anything else."""
    from kubewright.base.versions import Version

    try:
        return str(Version.parse(text)) if text else ""
    except ValueError as error:
        raise UsageError(f"--{flag}: {error}", remedy="write it like v1.36.3; without it, the API server's version is used") from error


def _read(path: str) -> str | None:
    from kubewright.host.filesystem.files import Files

    found = Files().read(PurePosixPath(path))
    return None if found is None else found.decode(errors="replace")
