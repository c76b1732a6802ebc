"""Distinguished names (RFC 5280, section 4.1.2.4) as Go's crypto/x509 parses them, in certificates and in requests.

The X.509 library parses some kinds of strings differently: a T61String is Latin-1 for Go and UTF-8 for the library.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kubewright.base.records import dataclass
from kubewright.pki.encoding import der
from kubewright.pki.encoding.der import DERError, Element


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One attribute of a name. `text` is None for a value that is not a string."""

    oid: str
    text: str | None


def read(name: Element) -> Iterator[tuple[Attribute, ...]]:
    """Yield the sets of attributes of a name. Raises DERError for anything that Go refuses."""
    for part in name.require(der.SEQUENCE, "the subject").children():
        yield tuple(_attribute(one) for one in part.require(der.SET, "a part of the subject").children())


def _attribute(element: Element) -> Attribute:
    what = "an attribute of the subject"
    found = list(itertools.islice(element.require(der.SEQUENCE, what).children(), 2))
    if len(found) < 2:
        raise DERError(f"{what} has {len(found)} parts instead of 2")
    kind, value = found
    return Attribute(oid=der.identifier_text(kind.require(der.OBJECT_IDENTIFIER, what).content), text=der.string(value))
