"""The file that `--config` names."""

from __future__ import annotations

from pathlib import Path

from kubewright.base import masking, yaml
from kubewright.base.errors import DocumentError
from kubewright.base.yaml import Document


def read_documents(path: str) -> list[Document]:
    """Read the documents of a configuration file. Raises DocumentError, naming the file, if it cannot be read."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DocumentError(f"cannot read {path}", detail=error.strerror or "", remedy="pass an existing file that you can read") from error
    found = yaml.load_all(content, source=path, recognise_json=True)
    for document in found:
        masking.remember_within(document.value)
    return found
