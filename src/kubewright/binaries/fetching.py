"""Fetches missing programs under the lock of the cache: downloads first, then builds, and reports why each source failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import BinariesError, HostError, KubewrightError, UsageError
from kubewright.base.events import Line, Reporter
from kubewright.binaries import files
from kubewright.binaries.artifacts import Artifact, artifacts, extract
from kubewright.binaries.build import Build
from kubewright.binaries.download import CONNECT_LIMIT, STALL, Downloads, Fetcher, forget_old
from kubewright.binaries.files import cache_lock
from kubewright.binaries.lookup import Located, Lookup
from kubewright.binaries.settings import NO_BUILD_VARIABLE, OFFLINE_VARIABLE, BinarySources
from kubewright.binaries.table import FAMILIES, Family, Refusal, Wanted
from kubewright.http.proxies import Proxies

TOPIC: Final = "binaries"
_SOURCES: Final = ("directory", "cache", "download", "build")
"""In the order in which they are asked."""


class Fetching:
    """A run that fetches missing programs."""

    def __init__(
        self,
        shelf: Lookup,
        *,
        sources: BinarySources,
        environment: Mapping[str, str],
        reporter: Reporter,
        clock: Clock,
        fetcher: Fetcher | None = None,
    ) -> None:
        self._shelf = shelf
        self._sources = sources
        self._environment = environment
        self._reporter = reporter
        self._clock = clock
        self._fetcher = fetcher
        self._refusals: dict[str, list[Refusal]] = {}

    def fetch(self, wanted: tuple[Wanted, ...], *, wait: bool) -> Located:
        """Fetch missing programs and return all. Raises BinariesError, DiskFull, HostError, Locked."""
        root = self._sources.cache
        if not self._sources.allow_download and not self._sources.allow_build:
            self._require(wanted)
        task = f"fetching {', '.join(self._shelf.locate(wanted).missing)}"
        with cache_lock(root, task=task, wait=wait, clock=self._clock, reporter=self._reporter):
            self._shelf.cache.forget()
            files.remove_stale(root)
            forget_old(root, now=self._clock.now())
            for source in (self._download, self._build):
                if missing := self._missing(wanted):
                    source(missing)
            return self._require(wanted)

    def _missing(self, wanted: Iterable[Wanted]) -> list[Wanted]:
        names = self._shelf.locate(tuple(wanted)).missing
        return [one for one in wanted if one.name in names]

    def _require(self, wanted: tuple[Wanted, ...]) -> Located:
        """Return all programs, or raise BinariesError with the reason of each source and the remedy."""
        located = self._shelf.locate(wanted)
        if not located.missing:
            return located
        lost = [one for one in wanted if one.name in located.missing]
        reasons = {one.name: [*located.missing[one.name], *self._switched_off(), *self._refusals.get(one.name, [])] for one in lost}
        raise BinariesError(
            f"no binary is available for {', '.join(map(str, lost))}",
            detail="\n".join(_account(reasons)),
            remedy="; or ".join(
                dict.fromkeys([*self._remedies(reasons), f"provide a directory that contains them ({self._sources.directory_setting})"])
            ),
        )

    def _switched_off(self) -> list[Refusal]:
        off = []
        if not self._sources.allow_download:
            off.append(Refusal(source="download", reason="not allowed", remedy=f"allow downloads ({OFFLINE_VARIABLE}=0)"))
        if not self._sources.allow_build:
            off.append(Refusal(source="build", reason="not allowed", remedy=f"allow building ({NO_BUILD_VARIABLE}=0)"))
        return off

    @staticmethod
    def _remedies(reasons: Mapping[str, list[Refusal]]) -> list[str]:
        return [refusal.remedy for refusals in reasons.values() for refusal in refusals if refusal.remedy and refusal.source != "directory"]

    def _refuse(self, wanted: Iterable[Wanted], source: str, error: KubewrightError) -> None:
        refusal = Refusal(source=source, reason=str(error), remedy=error.remedy)
        for one in wanted:
            self._refusals.setdefault(one.name, []).append(refusal)

    def _say(self, text: str) -> None:
        self._reporter.emit(Line(topic=TOPIC, text=text))

    # Downloading

    def _download(self, missing: list[Wanted]) -> None:
        if not self._sources.allow_download:
            return
        only_source = [one for one in missing if not one.program.family.download]
        if only_source:
            self._refuse(only_source, Downloads.name, BinariesError("released as source only"))
        if len(only_source) == len(missing):
            return
        try:
            fetcher = self._fetcher or web(self._sources, self._environment)
        except (HostError, UsageError) as error:  # no CA certificates on this machine; a proxy in the environment that only Go can use
            self._refuse(missing, Downloads.name, error)
            return
        downloads = Downloads(fetcher, root=self._sources.cache, mirrors=self._sources.mirrors, reporter=self._reporter, clock=self._clock)
        for artifact in artifacts(missing):
            try:
                self._unpack(artifact, downloads)
            except BinariesError as error:
                self._refuse(artifact.programs, Downloads.name, error)
                self._say(f"no download of {artifact.label}: {error}")

    def _unpack(self, artifact: Artifact, downloads: Downloads) -> None:
        """Download one file, and install the programs in it."""
        path = downloads.obtain(artifact)
        try:
            with files.work_directory(self._sources.cache) as work:
                found = extract(path, artifact, into=work) if artifact.is_archive else {artifact.programs[0].name: path}
                for one in artifact.programs:
                    self._shelf.cache.install(one, found[one.name], source=f"download {artifact.url}")
                    self._say(f"downloaded {one}")
        finally:
            path.unlink(missing_ok=True)

    # Building

    def _build(self, missing: list[Wanted]) -> None:
        if not self._sources.allow_build:
            return
        build = Build(self._environment, offline=self._sources.offline, reporter=self._reporter, clock=self._clock)
        for family in FAMILIES:
            group = [one for one in missing if one.program.family is family]
            if not group:
                continue
            try:
                self._compile(build, family, group)
            except BinariesError as error:
                self._refuse(group, Build.name, error)
                self._say(f"no build of {', '.join(map(str, group))}: {error}")

    def _compile(self, build: Build, family: Family, group: list[Wanted]) -> None:
        """Build the programs of one family, and install them."""
        self._say(f"building {', '.join(map(str, group))}")
        with files.work_directory(self._sources.cache) as work:
            found, how = build.obtain(family, group, work=work)
            for one in group:
                self._shelf.cache.install(one, found[one.name], source=how)
                self._say(f"built {one}")


def download(
    url: str,
    *,
    sha256: str,
    label: str,
    sources: BinarySources,
    environment: Mapping[str, str],
    reporter: Reporter,
    clock: Clock,
    fetcher: Fetcher | None = None,
) -> Path:
    """Download a file that is no program, and return its path in the cache; the caller removes it.

    The caller holds the cache's lock. Raises BinariesError with the reason for each host, DiskFull, HostError, UsageError.
    """
    client = fetcher or web(sources, environment)
    downloads = Downloads(client, root=sources.cache, mirrors=sources.mirrors, reporter=reporter, clock=clock)
    return downloads.obtain(Artifact(label=label, url=url, checksum_url="", pinned=sha256, programs=()))


def web(sources: BinarySources, environment: Mapping[str, str]) -> Fetcher:
    """Return the client for downloads: the machine's CA certificates, the proxy of the settings or of the environment.

    Raises HostError if the machine has no CA certificates, UsageError for an unusable proxy.
    """
    from kubewright.http.sync import Downloads as Web
    from kubewright.http.tls import host_context

    if sources.proxy is None:
        proxies = Proxies.from_environment(environment)
    else:
        exceptions = {name: environment.get(name, "") for name in ("NO_PROXY", "no_proxy")}
        proxies = Proxies.from_environment({**exceptions, "HTTPS_PROXY": sources.proxy})
    return Web(host_context(), proxies=proxies.require_usable(), connect=CONNECT_LIMIT, stall=STALL)


def _account(reasons: Mapping[str, list[Refusal]]) -> list[str]:
    """Return the reason of each source, once if it is the same for all programs."""
    refused: dict[tuple[str, str], list[str]] = {}
    for name, refusals in reasons.items():
        for refusal in refusals:
            refused.setdefault((refusal.source, refusal.reason), []).append(name)
    lines: list[str] = []
    for (source, reason), names in sorted(refused.items(), key=lambda row: _SOURCES.index(row[0][0])):
        whom = "" if len(names) == len(reasons) else f" ({', '.join(names)})"
        lines.append(f"{source}{whom}: " + reason.replace("\n", "\n    "))
    return lines
