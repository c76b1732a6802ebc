"""The contents of a machine tree, and their names. `make machine-tree` writes it (scripts/machine_tree.py).

A machine tree is a tar archive, compressed by zstd, with these entries:

- `machine.json`, the first one: a `Contents`;
- `base/…`: the Debian tree; `programs/NAME`: Kubernetes, the container runtime and its network; `pause`: the program of the pause image;
- `licenses/…`: of the programs; those of Debian's packages are in `base/usr/share/doc`.

Next to the file is another one with its SHA-256, in the form of `sha256sum`.
"""

from __future__ import annotations

import json
from typing import Final

from kubewright.base.errors import BinariesError
from kubewright.base.messages import quoted
from kubewright.base.records import asdict, dataclass
from kubewright.machines import base, images, kit

SCHEMA: Final = 1
CONTENTS: Final = "machine.json"
BASE: Final = "base"
PROGRAMS: Final = "programs"
PAUSE: Final = "pause"
LICENSES: Final = "licenses"
DIGEST_SUFFIX: Final = ".sha256"
NAMES: Final = tuple(sorted({*kit.PLACES, *images.PROGRAMS}))
"""The programs of a machine tree."""
_REMEDY: Final = "`make machine-tree` of this version of kubewright makes one that fits"


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The versions that a machine tree is for. `base` and `pause` identify the sources of these parts, as in the cache."""

    schema: int
    kubernetes: str
    architecture: str
    base: str
    pause: str


def expected(*, version: str, architecture: str) -> Contents:
    """Return the contents of the machine tree that this kubewright needs for a version of Kubernetes."""
    return Contents(schema=SCHEMA, kubernetes=version, architecture=architecture, base=base.place().name, pause=images.pause_place().name)


def file_name(*, version: str, architecture: str) -> str:
    """Return the name of the file."""
    return f"machine-{version}-{architecture}.tar.zst"


def encode(contents: Contents) -> bytes:
    """Return the bytes of `machine.json`."""
    return json.dumps(asdict(contents), indent=1, sort_keys=True).encode() + b"\n"


def require_equal(text: bytes, wanted: Contents) -> None:
    """Raise BinariesError, naming what differs, unless `machine.json` has the wanted contents."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BinariesError(f"{CONTENTS} of the machine tree is not JSON", remedy=_REMEDY) from error
    given = found if isinstance(found, dict) else {}
    for name, value in asdict(wanted).items():
        if given.get(name) != value:
            raise BinariesError(
                f"the machine tree does not fit this kubewright: its {name} is {quoted(str(given.get(name)))}, {quoted(str(value))} is needed",
                remedy=_REMEDY,
            )
