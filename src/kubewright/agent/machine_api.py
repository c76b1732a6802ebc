"""The kubelet API of an agent on a machine: its certificate, its listener, and the data of the machine that it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.agent.certificates.serving import ServingRequests
from kubewright.agent.certificates.store import OWN_FILES, SERVING, FilePairStore, PendingKey
from kubewright.agent.configuration.kubelet_api import KubeletAPIOptions
from kubewright.agent.dependencies import Seams
from kubewright.agent.node import NodeAgent
from kubewright.agent.server import Contents, KubeletServer
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.records import replace
from kubewright.host import usage
from kubewright.host.desired import File
from kubewright.host.readers import FileReader
from kubewright.host.seam import Host
from kubewright.http.tls import Limits
from kubewright.kube.daemons.serving_identity import CertificateFiles, ClientAuthorities, ServingIdentity, SignedCertificate, own_pair
from kubewright.pki.certificates import Pair
from kubewright.pki.keys import Algorithm

if TYPE_CHECKING:
    from kubewright.http.metrics import Histogram, Registry

_log = logging.getLogger(__name__)

_AGAIN: Final = 5.0
"""Seconds between two attempts to listen while another process has the port, such as a kubelet that is terminating."""
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 (what Go listens on for both families)
_AGES: Final = (60.0, 3600.0, 14400.0, 86400.0, 604800.0, 2592000.0, 7776000.0, 15552000.0, 31104000.0, 124416000.0)


class MachineAPI:
    """Serves the kubelet API of one machine.

    made ── prepare() ──> has a certificate, or waits for one ── run() ──> serving, or waiting for its port ── (cancelled) ──> stopped
    """

    def __init__(
        self,
        options: KubeletAPIOptions,
        host: Host,
        *,
        name: str,
        pki: PurePosixPath,
        agents: Callable[[], Iterable[NodeAgent]],
        seams: Seams,
        contents: Contents,
        again: float = _AGAIN,
    ) -> None:
        """Keep the arguments.

        `pki` is the directory of certificates; a port in use is tried again after `again` seconds.
        """
        self._options = options
        self._host = host
        self._name = name
        self._pki = pki
        self._agents = agents
        self._seams = seams
        self._contents = contents
        self._again = again
        self._signed = SignedCertificate(seams.clock)
        self._latest: Pair | None = None
        self._ages: Histogram | None = None
        self._identity: ServingIdentity | None = None
        self.trouble = "it does not listen yet"
        """Why the API cannot be called, '' if it can."""

    @property
    def requests(self) -> ServingRequests | None:
        """How the node agent requests a serving certificate, None if it does not."""
        if not self._options.requested:
            return None
        pki = Path(self._pki)
        store = FilePairStore(pki, SERVING, clock=self._seams.clock, given=self._options.files)
        return ServingRequests(store=store, use=self._use, pending=PendingKey(pki, SERVING))

    def measure(self, registry: Registry) -> None:
        """Record and show these metrics from now on."""
        self._contents = replace(self._contents, metrics=registry)
        self._ages = registry.histogram(
            "kubelet_certificate_manager_server_rotation_seconds",
            "Seconds that the previous serving certificate had lived when it was replaced.",
            buckets=_AGES,
        )

    async def prepare(self) -> None:
        """Read the files, and make our own certificate if one is needed and missing.

        Raises CertificateError for files that are missing or unusable, which end a kubelet too.
        """
        options, authorities = self._options, None
        if options.client_ca is not None:
            authorities = ClientAuthorities(options.client_ca, read=self._host.read)
            authorities.require()
        shown: SignedCertificate | CertificateFiles = self._signed
        if not options.requested:
            shown = CertificateFiles(*(options.files or await self._own_files()), read=self._host.read)
            shown.require()
        limits = Limits(oldest=options.oldest_tls, ciphers=options.ciphers)
        self._identity = ServingIdentity(shown, client_ca=authorities, limits=limits)
        self._identity.context()  # raise now, not at the first call

    async def run(self) -> None:
        """Serve until cancelled; while the port is in use, wait until it is free."""
        server = KubeletServer(
            self._agents, identity=self._identity, rules=self._options.rules, contents=self._contents, clock=self._seams.clock
        )
        try:
            await self._start(server)
            await asyncio.Event().wait()
        finally:
            await server.stop()

    def view(self) -> dict[str, Any]:
        """Return the state of the API for the status file."""
        options = self._options
        kind = "requested" if options.requested else "files" if options.files else "self-signed"
        return {"address": options.address, "port": options.port, "certificate": kind, "trouble": self.trouble}

    async def _start(self, server: KubeletServer) -> None:
        while True:
            try:
                await self._listen(server)
            except KubewrightError as error:
                if self.trouble != str(error):
                    _log.warning("the kubelet API is not served: %s", error)
                self.trouble = str(error)
                await asyncio.sleep(self._again)
            else:
                self.trouble = ""
                return

    async def _listen(self, server: KubeletServer) -> None:
        """Listen; an unspecified address means all addresses of both families, as in Go, if the machine has both."""
        options = self._options
        if options.address in _EVERYWHERE:
            try:
                await server.start("", options.port)
            except HostError:
                _log.info("not both families can be listened on; %s is tried", options.address)
            else:
                return
        await server.start(options.address, options.port)

    async def _own_files(self) -> tuple[PurePosixPath, PurePosixPath]:
        """Return the kubelet's own pair, made if it is missing: RSA, valid for a year, never rotated."""
        certificate, key = (self._pki / name for name in OWN_FILES)
        if self._host.read(certificate) is None and self._host.read(key) is None:
            now, random = self._seams.clock.now(), self._seams.random
            made = await asyncio.to_thread(own_pair, name=self._name, algorithm=Algorithm.RSA_2048, now=now, random=random)
            self._host.ensure(File(path=certificate, content=made[0], mode=0o644))
            self._host.ensure(File(path=key, content=made[1], mode=0o600))
        return certificate, key

    def _use(self, pair: Pair) -> None:
        if self._ages is not None and self._latest is not None and self._latest.pem() != pair.pem():
            self._ages.observe((self._seams.clock.now() - self._latest.leaf.not_before).total_seconds())
        self._latest = pair
        self._signed.use(pair)


def usage_metrics(files: FileReader) -> str:
    """Return the machine's usage in the metrics that metrics-server reads for `kubectl top node`.

    Source: kubelet: /metrics/resource.
    """
    seconds, memory = usage.processor_seconds(files), usage.memory(files)
    rows = (
        (
            "node_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the node in core-seconds",
            None if seconds is None else f"{seconds:g}",
        ),
        (
            "node_memory_working_set_bytes",
            "gauge",
            "Current working set of the node in bytes",
            None if memory is None else str(memory.capacity - memory.available),
        ),
        ("resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise", "0"),
    )
    return "".join(f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value}\n" for name, kind, text, value in rows if value is not None)
