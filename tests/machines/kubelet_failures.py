"""Makes the real kubelet of a machine fail, for each row of the table of hints, and returns what the diagnosis finds in its journal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from machine_kit import ENVIRONMENT, write
from testbed.sharing import PYTHON

from kubewright.machines.machine import Machine

PLACE: Final = "/root/failing"
_CONFIG: Final = f"{PLACE}/kubelet.yaml"
_DROP_IN: Final = "/run/systemd/system/kubelet.service.d/99-failing.conf"
_UNIT: Final = f"""\
[Service]
Restart=no
Environment="MORE="
EnvironmentFile=-{PLACE}/more
ExecStart=
ExecStart=/usr/bin/kubelet --config={_CONFIG} --root-dir={PLACE}/data --cert-dir={PLACE}/pki $MORE
"""
_STANDALONE: Final = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
"""
SWAP: Final = "Filename Type Size Used Priority\\n/dev/sda2 partition 1000 0 -2\\n"
_LISTEN: Final = "import socket, time; s = socket.create_server(('0.0.0.0', 10250)); open('{place}/listens', 'w'); time.sleep(7200)"
_HOLD: Final = f'systemd-run -q --unit=holder /usr/bin/python3 -c "{_LISTEN.format(place=PLACE)}"'
_WAIT: Final = "for _ in $(seq 6000); do [ {condition} ] && exit 0; sleep 0.1; done; exit 1"
_FAILED: Final = "(" + _WAIT.format(condition='"$(systemctl is-active kubelet)" = failed') + ")"
LATE_JOURNAL: Final = """\
journald=$(systemctl show -p MainPID --value systemd-journald)
kill -STOP $journald
systemctl start kubelet
{wait}
kill -CONT $journald
"""
"""Starts the kubelet so that journald reads its output only after the process has ended."""

FAILING: Final[Mapping[str, tuple[str, str]]] = {
    "failed to parse kubelet flag": (f"echo MORE=--nonsense > {PLACE}/more", f"rm {PLACE}/more"),
    "not run on a host using cgroup v1": (f"sed -i 's/failCgroupV1: false/failCgroupV1: true/' {_CONFIG}", "true"),
    "failed to validate kubelet configuration": (f"echo 'maxPods: -1' >> {_CONFIG}", "true"),
    "failed to load kubelet config file": (f"echo 'maxPods: [' >> {_CONFIG}", "true"),
    "running with swap on": (f"printf '{SWAP}' > {PLACE}/swaps; mount --bind {PLACE}/swaps /proc/swaps", "umount /proc/swaps"),
    "exec format error": (
        f"echo none > {PLACE}/none; chmod +x {PLACE}/none; mount --bind {PLACE}/none /usr/bin/kubelet",
        "umount /usr/bin/kubelet",
    ),
    "failed at step exec": ("mv /usr/bin/kubelet /usr/bin/kubelet.away", "mv /usr/bin/kubelet.away /usr/bin/kubelet"),
    "validate service connection": ("systemctl stop containerd", "systemctl start containerd"),
    "address already in use": (f"{_HOLD}; {_WAIT.format(condition=f'-e {PLACE}/listens')}", "systemctl stop holder"),
    "no space left on device": (
        f"mount -t tmpfs -o size=4k none {PLACE}/data && dd if=/dev/zero of={PLACE}/data/full bs=4k count=1",
        f"umount {PLACE}/data",
    ),
    "read-only file system": (f"mount -t tmpfs -o ro none {PLACE}/data", f"umount {PLACE}/data"),
}
"""What breaks a machine, and what repairs it, by the text of the row."""
UNKNOWN: Final = "open /none: no such file or directory"
"""A failure that no row is for."""
_BREAKING: Final = {**FAILING, UNKNOWN: (f"sed -i 's|webhook: |x509: {{clientCAFile: /none}}, webhook: |' {_CONFIG}", "true")}

_LOOK: Final = """\
import json
from kubewright.cli.handlers import machine
from kubewright.lifecycle.diagnosis import observation, remedies
seen = observation.observe(machine.host(), (), journal=True)
said = observation.reasons(seen.journal)
print(json.dumps({"failed": seen.kubelet.failed, "said": said, "journal": seen.journal, "remedy": remedies.of_kubelet(said)}))
"""


@contextmanager
def standalone(machine: Machine) -> Iterator[None]:
    """Let the machine's kubelet run without a cluster and without restarts while the block runs."""
    machine.run("mkdir", "-p", f"{PLACE}/data", _DROP_IN.rpartition("/")[0])
    write(machine, _DROP_IN, _UNIT)
    machine.run("sh", "-c", "systemctl daemon-reload; systemctl stop kubelet")
    try:
        yield
    finally:
        machine.run("sh", "-c", f"rm -rf {_DROP_IN} {PLACE}; systemctl daemon-reload; systemctl reset-failed kubelet")


def fail(machine: Machine, text: str, *, start: str = "systemctl start kubelet; {wait}") -> dict[str, object]:
    """Make the kubelet fail so that it writes the text of a row. Returns what the diagnosis finds.

    `start` starts the kubelet; `{wait}` waits until it has failed.
    """
    breaks, mends = _BREAKING[text]
    write(machine, _CONFIG, _STANDALONE)
    machine.run("sh", "-c", breaks)
    try:
        machine.run("sh", "-c", start.format(wait=_FAILED))
        machine.run("journalctl", "--sync")  # its output may be in the journal later
        return dict(json.loads(machine.run(PYTHON, "-c", _LOOK, env=ENVIRONMENT).out))
    finally:
        machine.run("sh", "-c", f"systemctl stop kubelet; {mends}")
