"""Kubelet and agent in turn on one machine: starts either with the same flags and files, and compares the results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from machine_kit import ENVIRONMENT, administer, eventually, gone, kubectl, kubewright, write
from testbed.sharing import PYTHON

from kubewright.agent.registration import ATTACH_DETACH
from kubewright.agent.status.setters import find
from kubewright.base.clock import rfc3339
from kubewright.base.quantity import Quantity
from kubewright.machines.machine import Machine

ADMIN = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}
UNIT = "kubewright-agent"
SETTINGS: Final = "/var/lib/kubelet/config.yaml"
BOOTSTRAP: Final = "/etc/kubernetes/bootstrap-kubelet.conf"
MOVES: Final = re.compile(
    r"metadata\.(?:uid|resourceVersion|creationTimestamp|managedFields)(?:$|\.|\[)"
    r"|metadata\.ownerReferences$|spec\.podCIDRs?$|.*\.(?:lastHeartbeatTime|lastTransitionTime|renewTime)$"
)
"""Fields that differ between two runs of the same program. Owners are compared separately."""


_AWAY: Final = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
_TTL: Final = "node.alpha.kubernetes.io/ttl"


class Worker:
    """A machine that has joined, and on which kubelet and agent run in turn. `flags` are those with which its kubelet was started."""

    def __init__(self, one: Machine, machine: Machine) -> None:
        self.one, self.machine, self.name = one, machine, machine.name
        line = machine.run("sh", "-c", "tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID kubelet)/cmdline").out
        self.flags = line.split("\n")[1:-1]

    def kubelet(self, *extra: str) -> None:
        write(self.machine, "/etc/default/kubelet", f"KUBELET_EXTRA_ARGS='{' '.join(extra)}'\n")
        self.machine.run("systemctl", "start", "kubelet")

    def agent(self, *extra: str) -> None:
        settings = [f"--setenv={name}={value}" for name, value in ENVIRONMENT.items()]
        unit = (f"--unit={UNIT}", "--property=Type=notify", "--property=TimeoutStartSec=600", *settings)
        self.machine.run("systemd-run", *unit, PYTHON, "-m", "kubewright", "agent", "run", *self.flags, *extra)

    def end(self) -> None:
        """Stop whichever of them is running."""
        self.machine.run("systemctl", "stop", "kubelet", f"{UNIT}.service", check=False)

    def get(self, kind: str) -> dict[str, Any]:
        where = ("-n", "kube-node-lease") if kind == "lease" else ()
        return kubectl(self.one, *where, "get", kind, self.name)

    def objects(self) -> dict[str, Any]:
        found = {kind: self.get(kind) for kind in ("node", "lease", "csinode")}
        assert all(found.values()), found
        return found

    def forget(self) -> None:
        """Delete what a kubelet creates, while none is running."""
        administer(self.one, "delete", "node", self.name, "--ignore-not-found")
        administer(self.one, "-n", "kube-node-lease", "delete", "lease", self.name, "--ignore-not-found")
        eventually(lambda: gone(self.one, "csinode", self.name), "the CSINode to go with its Node")

    def condition(self, kind: str) -> dict[str, Any]:
        return find(self.get("node").get("status", {}).get("conditions", ()), kind) or {}

    def heartbeat(self) -> str:
        """Return the time of the last heartbeat of a program that has ended, once that second is over: that of the next program is later."""
        found = str(self.condition("Ready")["lastHeartbeatTime"])
        eventually(lambda: rfc3339(datetime.now(UTC)) > found, "the next second")
        return found

    def ready(self, *, since: str = "", status: str = "True") -> None:
        """Wait until the Node is ready, or not ready, with a heartbeat after this time, and has its other objects."""

        def is_so() -> bool:
            row = self.condition("Ready")
            return row.get("status") == status and row["lastHeartbeatTime"] > since

        eventually(is_so, f"Ready to be {status} on {self.name}: {self.said()}")
        eventually(lambda: bool(self.get("lease") and self.get("csinode")), "its Lease and CSINode")
        if status == "True":
            eventually(self._is_whole, "its taints to go, an annotation, and its images")

    def _is_whole(self) -> bool:
        """Whether kube-controller-manager has done its part, and the images are there, which a kubelet lists in the background."""
        node = self.get("node")
        away = any(taint["key"] in _AWAY for taint in node.get("spec", {}).get("taints", ()))
        return not away and _TTL in node.get("metadata", {}).get("annotations", {}) and bool(node["status"].get("images"))

    def said(self) -> str:
        return self.machine.run("journalctl", "-u", UNIT, "-n", "30", "--no-pager", check=False).out


class Scarcity:
    """Uses up disk, memory and process IDs of a machine while a block runs.

    `tasks` are those of the whole host, because one machine can take all.
    """

    MARGIN: Final = {"memory.available": 400 << 20, "pid.available": 4000}
    """How much less than now may be left: more than other programs need in the meantime."""
    _MEASURE: Final = (
        "from kubewright.host import usage; from kubewright.host.filesystem.files import Files; files = Files()\n"
        "print(usage.memory(files).available, usage.process_ids(files).available)"
    )
    _TAKE: Final = """
import sys, threading, time
memory = bytearray(b"x" * int(sys.argv[1]))
threading.stack_size(1 << 16)
for _ in range(int(sys.argv[2])):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
time.sleep(3600)
"""

    def __init__(self, worker: Worker, *, tasks: bool) -> None:
        self._machine = worker.machine
        memory, processes = (2 * least for least in self.MARGIN.values())
        self._amounts = (str(memory), str(processes if tasks else 0))

    @classmethod
    def thresholds(cls, worker: Worker) -> str:
        """Return how much of the machine's memory and process IDs is to be left, in the format of `--eviction-hard`."""
        left = map(int, worker.machine.run(PYTHON, "-c", cls._MEASURE, env=ENVIRONMENT).out.split())
        rows = zip(cls.MARGIN.items(), left, strict=True)
        return ",".join(f"{signal}<{now - margin}" for (signal, margin), now in rows)

    def take(self) -> None:
        self._machine.run("sh", "-c", "head -c 62000000 /dev/zero > /var/lib/small/big")
        limits = ("--property=TasksMax=infinity", "--property=KillSignal=SIGKILL")
        self._machine.run("systemd-run", "--unit=taker", *limits, PYTHON, "-c", self._TAKE, *self._amounts)

    def give_back(self) -> None:
        self._machine.run("sh", "-c", "rm /var/lib/small/big")
        self._machine.run("systemctl", "stop", "taker")


def differences(left: Any, right: Any, path: str = "") -> set[str]:
    """Return the paths that differ; conditions and addresses in lists are identified by their type."""
    if MOVES.match(path):
        return set()
    if isinstance(left, list) and isinstance(right, list) and all(isinstance(row, dict) and "type" in row for row in (*left, *right)):
        left, right = ({f"{row['type']}:{row.get('address', '')}": row for row in rows} for rows in (left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        below = (differences(left.get(name), right.get(name), f"{path}.{name}" if path else name) for name in {*left, *right})
        return set().union(*below)
    return set() if left == right else {path}


def all_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, set[str]]:
    return {kind: found for kind in left if (found := differences(left[kind], right[kind]))}


class Meddler:
    """A client that changes the Node of a worker, and what should remain of its changes."""

    ADVERTISED: Final = {"example.com/dongle": "4", "hugepages-96Ki": "192Ki"}
    """Added to capacity and allocatable: no device plug-in provides the one, and no machine has huge pages of the other size."""
    UNFOUNDED: Final = {"example.com/gadget": "3", "hugepages-96Mi": "192Mi"}
    """Added to allocatable only."""
    _LABELS: Final = {"kubernetes.io/arch": "z80", "example.com/theirs": "x", "node.kubernetes.io/instance-type": "big"}
    _OLD_ARCHITECTURE: Final = "beta.kubernetes.io/arch"

    def __init__(self, worker: Worker) -> None:
        node = worker.get("node")
        self._worker = worker
        self._labels = node["metadata"]["labels"]
        self._amounts = {kind: node["status"][kind] for kind in ("capacity", "allocatable")}

    def change(self) -> None:
        """Change labels, an annotation and amounts."""
        allocatable = {**self.ADVERTISED, **self.UNFOUNDED}
        self._patch({"status": {"capacity": self.ADVERTISED, "allocatable": allocatable}}, "--subresource=status")
        self._patch({"metadata": {"labels": self._LABELS, "annotations": {ATTACH_DETACH: "false"}}})

    def change_while_ended(self) -> None:
        """Change a Node whose machine is silent: nothing corrects the architecture that kube-controller-manager copies to another label."""
        self.change()
        copied = self._LABELS["kubernetes.io/arch"]
        eventually(lambda: self._worker.get("node")["metadata"]["labels"][self._OLD_ARCHITECTURE] == copied, "the other label")

    def undo(self) -> None:
        nothing = dict.fromkeys((*self.ADVERTISED, *self.UNFOUNDED))
        self._patch({"status": {"capacity": nothing, "allocatable": nothing}}, "--subresource=status")
        self._patch({"metadata": {"labels": {**dict.fromkeys(self._LABELS), **self._labels}, "annotations": {ATTACH_DETACH: "true"}}})

    def left(self, *, registered: bool) -> dict[str, Any]:
        """Return what a kubelet leaves of the changes.

        `registered`: it was started after the change, and has removed what the machine cannot have.
        """
        more = {name: amount for name, amount in self.ADVERTISED.items() if not (registered and name.startswith("hugepages-"))}
        kept = {name: amount for name, amount in self.UNFOUNDED.items() if name.startswith("hugepages-")}
        memory = Quantity.parse(self._amounts["allocatable"]["memory"]).value
        memory -= sum(Quantity.parse(amount).value for name, amount in more.items() if name.startswith("hugepages-"))
        return {
            "labels": {**self._labels, **{name: text for name, text in self._LABELS.items() if name not in self._labels}},
            "annotation": "true" if registered else "false",
            "capacity": {**self._amounts["capacity"], **more},
            "allocatable": {**self._amounts["allocatable"], **more, **kept, "memory": str(Quantity.of_bytes(memory))},
        }

    def found(self) -> dict[str, Any]:
        """Return the same parts of the current Node."""
        node = self._worker.get("node")
        metadata, status = node["metadata"], node["status"]
        amounts = {kind: status[kind] for kind in self._amounts}
        return {"labels": metadata["labels"], "annotation": metadata["annotations"].get(ATTACH_DETACH), **amounts}

    def _patch(self, body: Mapping[str, Any], *where: str) -> None:
        administer(self._worker.one, "patch", "node", self._worker.name, "-p", json.dumps(body), *where)


class Wire:
    """A proxy in front of a machine's API server, and what a worker sent through it."""

    PORT: Final = 7443
    FILE: Final = "/root/wire.jsonl"

    def __init__(self, one: Machine) -> None:
        self._one = one
        write(one, "/root/recording_proxy.py", Path(__file__).with_name("recording_proxy.py").read_text())
        one.run("systemd-run", "--unit=wire", "/usr/bin/python3", "/root/recording_proxy.py", str(self.PORT), self.FILE)

    def bootstrap(self, worker: Worker) -> None:
        """Let a machine join again through the proxy, whatever is started there, and send its status every three seconds."""
        worker.end()
        worker.forget()
        worker.machine.run("sh", "-c", "rm -f /var/lib/kubelet/pki/kubelet-client* /etc/kubernetes/kubelet.conf")
        conf = kubewright(self._one, "token", "create", "--print-bootstrap-kubeconfig").out
        write(worker.machine, BOOTSTRAP, conf.replace(":6443", f":{self.PORT}"))
        worker.machine.run("sed", "-i", r"s/^\(nodeStatus.*Frequency:\).*/\1 3s/", SETTINGS)
        self.forget()

    def forget(self) -> None:
        """Forget all requests so far."""
        self._one.run("sh", "-c", f": > {self.FILE}")

    def rows(self) -> list[dict[str, str]]:
        """Return every request since `forget`, but for one that is being written."""
        return [json.loads(line) for line in self._one.run("cat", self.FILE).out.splitlines(keepends=True) if line.endswith("\n")]

    def node_patches(self) -> list[dict[str, Any]]:
        """Return the bodies of the patches of the node's status."""
        return [json.loads(row["body"]) for row in self.rows() if row["method"] == "PATCH" and "/nodes/two/status" in row["path"]]

    def end(self, worker: Worker) -> None:
        """Stop it; from now on the machine uses the API server itself."""
        worker.end()
        worker.machine.run("sed", "-i", r"s/^\(nodeStatus.*Frequency:\).*/\1 0s/", SETTINGS)
        worker.machine.run("sh", "-c", f"sed -i s/:{self.PORT}/:6443/ {BOOTSTRAP} /etc/kubernetes/kubelet.conf")
        self._one.run("systemctl", "stop", "wire", check=False)


SPOKEN: Final = (
    *("/certificatesigningrequests", "/nodes", "/nodes/two/status", "/namespaces/kube-node-lease/leases"),
    *("/namespaces/kube-node-lease/leases/two", "/csinodes", "/namespaces/default/events"),
)
"""What is compared: the requests with which a node writes about itself."""


def spoken(rows: list[dict[str, str]]) -> dict[str, set[str]]:
    """Return the content of each kind of write: `METHOD /path` to content types, parameters and the keys of the bodies."""
    found: dict[str, set[str]] = {}
    for row in rows:
        path, _, query = row["path"].partition("?")
        what = re.sub(r"^/(?:api|apis/[^/]+)/v1(?=/)", "", path)
        if row["method"] == "GET" or what not in SPOKEN:
            continue
        said = found.setdefault(f"{row['method']} {what}", set())
        said |= {f"type {row['type']}", *(f"?{pair.partition('=')[0]}" for pair in query.split("&") if pair)}
        if "json" in row["type"]:
            said |= _keys(json.loads(row["body"]))
    return found


def _keys(value: Any, path: str = "") -> set[str]:
    if isinstance(value, list):
        return set().union(*(_keys(item, f"{path}[]") for item in value))
    if isinstance(value, Mapping) and value and not path.endswith(("labels", "annotations", "capacity", "allocatable", "managedFields[]")):
        return set().union(*(_keys(item, f"{path}.{key}" if path else key) for key, item in value.items()))
    return {path} if path else set()


def unlike(kubelets: Mapping[str, set[str]], ours: Mapping[str, set[str]]) -> set[str]:
    """Return what only one of them sends: `-` the kubelet, `+` the agent."""
    return {
        f"{mark} {what}: {word}"
        for what in {*kubelets, *ours}
        for mark, mine, other in (("-", kubelets, ours), ("+", ours, kubelets))
        for word in mine.get(what, set()) - other.get(what, set())
        if not word.endswith("lastTransitionTime")  # after a change back within one second it is the same
        if not word.startswith("status.images")  # in the first status of a kubelet only if it has listed them by then
    }
