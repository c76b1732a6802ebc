"""The border to the X.509 library: whatever it raises on unusable input becomes an error of our tree, and its warnings stay unsaid."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kubewright.base.errors import CertificateError

_FILTERS: Final = threading.RLock()
"""`warnings.catch_warnings` changes a list of the whole process: only one of our threads at a time."""


@contextmanager
def reading(what: str, *, remedy: str = "") -> Iterator[None]:
    """Raise CertificateError, naming the object, for whatever the library raises inside."""
    try:
        with quiet():
            yield
    except CertificateError:
        raise
    except Exception as error:  # the library documents ValueError and raises a dozen classes: all say that the input is unusable
        raise CertificateError(f"{what} cannot be read", detail=_first_line(error), remedy=remedy) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's warnings off the terminal.

    It warns about names that Go's X.509 accepts and clusters have: a common name such as `system:node:` and a long host name exceeds the
    64 characters of RFC 5280.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _first_line(error: Exception) -> str:
    """Say why, in one line. The library's messages name structures, never content."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
