"""Milestones of a machine and its cluster, observed from outside: one thread per machine that checks every 50 ms.

The thread enters the machine's network, so that it also sees what listens on loopback there, and uses one kept-alive
connection; it runs no program. The start times of processes are read from /proc afterwards, which does not affect the
measured run.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tests.bench.admin import is_ready
from tests.bench.running import BenchmarkFailed

from kubewright.host.filesystem.files import Files
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import load_access
from kubewright.machines.machine import Machine

EVERY: Final = 0.05
PATIENCE: Final = 180.0
"""Seconds after which a run fails."""

_NETWORK: Final = 0x40000000
"""CLONE_NEWNET, for setns(2), which Python has since 3.12."""
_TROUBLE: Final = (OSError, http.client.HTTPException, ValueError)


class Looker:
    """The connections of probes, from inside one machine. `server` is the machine whose administrator's kubeconfig is used."""

    def __init__(self, machine: Machine, server: Machine) -> None:
        self.machine = machine
        self._server = server
        self._connection: http.client.HTTPSConnection | None = None

    def port(self, port: int, host: str = "127.0.0.1") -> bool:
        """Whether something listens on the port."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((host, port)) == 0

    def answers(self, url: str) -> bool:
        """Whether an address answers 200 to anonymous requests; certificates are not verified."""
        scheme, _, rest = url.partition("://")
        place, _, path = rest.partition("/")
        connection = (
            http.client.HTTPSConnection(place, context=_unverified(), timeout=2)
            if scheme == "https"
            else http.client.HTTPConnection(place, timeout=2)
        )
        try:
            connection.request("GET", f"/{path}")
            return connection.getresponse().status == 200
        except _TROUBLE:
            return False
        finally:
            connection.close()

    def serves(self) -> bool:
        """Whether the machine's own API server answers at all: TLS is up, whatever the status."""
        connection = http.client.HTTPSConnection(self.machine.address, 6443, context=_unverified(), timeout=5)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status > 0
        except _TROUBLE:
            return False
        finally:
            connection.close()

    def api(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of a GET as the administrator; status 0 if there is no answer."""
        try:
            connection = self._connect()
            connection.request("GET", path)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if answer.status == 200 and content[:1] == b"{" else {}
        except _TROUBLE:
            self.close()
            return 0, {}

    def delete(self, path: str) -> None:
        """Delete an object; a missing one is no error. Raises OSError if there is no answer."""
        connection = self._connect()
        connection.request("DELETE", path)
        connection.getresponse().read()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPSConnection:
        if self._connection is None:
            context = administrator(self._server).context()
            self._connection = http.client.HTTPSConnection(self._server.address, 6443, context=context, timeout=5)
        return self._connection


Probe = Callable[[Looker], bool]


class Watch(threading.Thread):
    """Records when each milestone was first seen.

    Probes are tried in order; a probe with `after` is tried only once those milestones were seen.
    """

    def __init__(
        self, machine: Machine, probes: Mapping[str, Probe], *, server: Machine | None = None, after: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(daemon=True, name=f"watch-{machine.name}")
        self._looker = Looker(machine, server or machine)
        self._probes = dict(probes)
        self._after = dict(after or {})
        self._given_up = threading.Event()
        self._error = ""
        self.seen: dict[str, float] = {}

    def run(self) -> None:
        """Check until everything was seen."""
        try:
            enter_network(self._looker.machine)
            while len(self.seen) < len(self._probes) and not self._given_up.is_set():
                self._look()
                self._given_up.wait(EVERY)
        except OSError as error:
            self._error = str(error)
        finally:
            self._looker.close()

    def wait(self, within: float = PATIENCE) -> dict[str, float]:
        """Return the monotonic times of all milestones. Raises BenchmarkFailed, naming those that were not reached."""
        self.join(within)
        missing = [name for name in self._probes if name not in self.seen]
        self.stop()
        if missing:
            raise BenchmarkFailed(f"{self._looker.machine.name} did not reach: {', '.join(missing)} {self._error}".rstrip())
        return self.seen

    def stop(self) -> None:
        """Stop checking."""
        self._given_up.set()
        if self.is_alive():
            self.join(10)

    def _look(self) -> None:
        for name, probe in self._probes.items():
            before = self._after.get(name)
            if name not in self.seen and (before is None or before in self.seen) and probe(self._looker):
                self.seen[name] = time.monotonic()


def enter_network(machine: Machine) -> None:
    """Put the calling thread into a machine's network. Raises OSError."""
    handle = os.open(f"/proc/{machine.leader}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(handle, _NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(handle)


def administrator(machine: Machine) -> Access:
    """Read the credentials of the administrator whom every API server authorizes from the beginning.

    Raises OSError if there are none yet.
    """
    path = machine.root / "etc/kubernetes/super-admin.conf"
    if not path.exists():
        path = path.with_name("admin.conf")
    if not path.exists() or not path.read_bytes().strip():
        raise FileNotFoundError(path)
    return load_access(PurePosixPath(path), read=Files().read)


def nodes_ready(*names: str) -> Probe:
    """Whether all these Nodes report that they are ready."""

    def probe(look: Looker) -> bool:
        _, found = look.api("/api/v1/nodes")
        return set(names) <= {node["metadata"]["name"] for node in found.get("items", []) if is_ready(node)}

    return probe


def exists(path: str) -> Probe:
    """Whether the API server has this object, or answers 200 at this path."""
    return lambda look: look.api(path)[0] == 200


def available(kind: str, name: str) -> Probe:
    """Whether all pods of a workload in kube-system are available."""

    def probe(look: Looker) -> bool:
        _, found = look.api(f"/apis/apps/v1/namespaces/kube-system/{kind}/{name}")
        status = found.get("status", {})
        wanted = status.get("desiredNumberScheduled") or found.get("spec", {}).get("replicas") or 0
        return wanted > 0 and wanted == (status.get("numberAvailable") or status.get("availableReplicas"))

    return probe


def condition_available(name: str) -> Probe:
    """Whether a Deployment in kube-system reports that it is Available, with as many pods as its strategy requires."""

    def probe(look: Looker) -> bool:
        _, found = look.api(f"/apis/apps/v1/namespaces/kube-system/deployments/{name}")
        conditions = found.get("status", {}).get("conditions", [])
        return any(one["type"] == "Available" and one["status"] == "True" for one in conditions)

    return probe


def processes(machine: Machine, names: Sequence[str]) -> dict[str, float]:
    """Return when programs of a machine were started (the latest of each name), as monotonic time."""
    tick, offset = os.sysconf("SC_CLK_TCK"), time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    found: dict[str, float] = {}
    for pid in machine.cgroups.processes():
        try:
            line = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        name, fields = line[line.index("(") + 1 : line.rindex(")")], line[line.rindex(")") + 2 :].split()
        full = next((one for one in names if one[:15] == name), None)
        if full is not None:
            found[full] = max(found.get(full, 0.0), int(fields[19]) / tick - offset)
    return found


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
