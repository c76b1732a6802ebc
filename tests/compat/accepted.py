"""The differences from kubeadm that the differential tests accept; any other difference fails.

Each row has its reason, and names the page that documents it for users and the words found there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubewright.base import yaml
from kubewright.base.errors import DocumentError


@dataclass(frozen=True)
class Found:
    """One difference: what differs (a path, or the name of an output), the configuration, and both results."""

    what: str
    source: str
    theirs: str
    ours: str

    @property
    def documents(self) -> list[Mapping[str, Any]]:
        """The documents of the configuration; none, if it cannot be read."""
        try:
            values = [document.value for document in yaml.load_all(self.source)]
        except DocumentError:
            return []
        return [value for value in values if isinstance(value, Mapping)]

    @property
    def our_fields(self) -> set[str]:
        """The fields that we refuse."""
        return set(re.findall(r"^  (?:\S+:\d+(?::\d+)?: )?([\w.\[\]-]+): [A-Z<]", self.ours, re.MULTILINE))


@dataclass(frozen=True)
class Row:
    """A kind of difference. `page` is below docs/compat and contains `words`."""

    reason: str
    page: str
    words: str
    applies: Callable[[Found], bool]


class Table:
    """Rows, and which of them were needed."""

    def __init__(self, *rows: Row) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def accept(self, found: Found) -> bool:
        return any(row.applies(found) for row in self._rows)


def _only_we_refuse(*paths: str) -> Callable[[Found], bool]:
    """kubeadm accepts what we refuse, only because of these fields."""
    return lambda found: (
        found.what.startswith("verdict") and not _failed(found.theirs) and bool(found.our_fields) and found.our_fields <= set(paths)
    )


def _failed(err: str) -> bool:
    return "\nerror" in f"\n{err}"


def _takes_expires(found: Found) -> bool:
    lists = [document.get("bootstrapTokens") for document in found.documents]  # of broken files: they may be anything
    tokens = [token for given in lists if isinstance(given, list) for token in given if isinstance(token, Mapping)]
    return "bootstrapTokens." in found.theirs and not _failed(found.ours) and any(token.get("expires") for token in tokens)


FILES = Table(
    Row(
        "negative periods pass: nothing that they sign would be valid",
        "config.md",
        "negative certificate validity periods pass",
        _only_we_refuse("certificateValidityPeriod", "caCertificateValidityPeriod"),
    ),
    Row(
        "a socket with another scheme cannot be reached",
        "config.md",
        "becomes `unix://tcp://h:1`",
        _only_we_refuse("nodeRegistration.criSocket", "criSocket"),
    ),
    Row(
        "a document spells the names of its first fields in other letters",
        "config.md",
        "`APIVERSION: …` passes",
        lambda found: "must be spelled like this, and be strings" in found.ours and not _failed(found.theirs),
    ),
    Row("expires cannot be used, because a ttl is filled in first", "config.md", "`bootstrapTokens[].expires` is refused", _takes_expires),
    Row(
        "an UpgradeConfiguration cannot be migrated",
        "config.md",
        "`config migrate` fails for an UpgradeConfiguration",
        lambda found: "could not find a mutator" in found.theirs and not _failed(found.ours),
    ),
)
"""For configuration files and the commands that read them."""

DRY = "/srv/dry"
"""The directories to which dry runs write."""

MACHINES = Table(
    Row(
        "no value of a file that other programs read has a use for control characters",
        "config.md",
        "values of a KubeletConfiguration with line ends or other control characters pass",
        lambda found: found.what == "verdict" and not _failed(found.theirs) and "holds a control character\n" in found.ours,
    ),
)
"""For the files, images and add-ons of a control plane."""

COMMANDS = Table(
    Row(
        "a directory that holds keys is private",
        "kubeadm.md",
        "makes the directory that KUBEADM_INIT_DRYRUN_DIR names",
        lambda found: (
            found.what == DRY
            and found.theirs == "('directory', '0o755', '0:0', None)"
            and found.ours == "('directory', '0o700', '0:0', None)"
        ),
    ),
    Row(
        "a flag that is given counts",
        "certs.md",
        "the default of `--cert-dir` overrides",
        lambda found: found.source.startswith("certs") and "--cert-dir" in found.source and "--config" in found.source,
    ),
    Row(
        "a CA without a certificate does not hide the other certificates",
        "certs.md",
        "check-expiration fails if the CA of an existing certificate is missing",
        lambda found: (
            found.what == "exit code"
            and found.source.startswith("certs check-expiration")
            and "Error checking external CA condition" in found.theirs
            and "no such file or directory" in found.theirs
            and found.ours.startswith("0: ")
        ),
    ),
)
"""For command lines: `source` is the line."""

TABLES = (FILES, MACHINES, COMMANDS)
