"""The sources of component binaries: a directory, the cache, a download, a build from Go modules.

`ensure` returns them and fetches missing ones; `locate`, `listing` and `verify` only read. Must not start components,
and knows nothing of clusters. The names of files, addresses and Go packages are those of the upstream releases (see
`table`).
"""

from __future__ import annotations

from kubewright.binaries.lookup import Located
from kubewright.binaries.providing import Listed, Verified, ensure, listing, locate, only_built, verify
from kubewright.binaries.settings import BinarySources, sources_from
from kubewright.binaries.table import DEFAULT, PROGRAMS, Binary, Refusal

__all__ = [
    "DEFAULT",
    "PROGRAMS",
    "Binary",
    "BinarySources",
    "Listed",
    "Located",
    "Refusal",
    "Verified",
    "ensure",
    "listing",
    "locate",
    "only_built",
    "sources_from",
    "verify",
]
