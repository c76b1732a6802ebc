"""`python -m testbed`: machines by hand.

packages              install what the host needs (root, apt)
build                 make what is made once: base tree, kit, images
ensure                both, if machines can be made on this host; otherwise says why not and does nothing
up NAME...            boot machines and keep them until the command is interrupted; prints how to enter them
enter BED/NAME [CMD]  run a shell or a command in a running machine; without BED, in a machine of `up`
copy FROM:PATH... TO: copy files from machines to the directory /root of another, with their modes (TO:DIRECTORY for another directory)
sweep                 remove the leftovers of killed beds
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from kubewright.base.errors import HostError
from kubewright.cli.printers.reporters import PlainLines
from kubewright.machines import host
from kubewright.machines.machine import Machine
from kubewright.machines.places import MachinePlaces
from testbed.bed import Bed, ensure_parts, sweep
from testbed.configuration import KUBEADM, has_cgroup_v1
from testbed.packages import install_packages
from testbed.places import beds
from testbed.sharing import COMMAND, LAUNCHER, SHARED

_BED = "hand"
_HOW = """
Each machine has kubewright, kubeadm, kubectl, containerd and the kubelet, and /root/kubeadm.yaml for `kubewright init --config kubeadm.yaml`.
Press Ctrl-C to stop and remove them.
"""
_CGROUP_V1 = "This host has cgroup v1: add `--ignore-preflight-errors SystemVerification` to `kubewright join`.\n"


def main(arguments: Sequence[str]) -> int:
    """Run one command. Returns 1 if it failed, 2 if its arguments are wrong."""
    command = _COMMANDS.get(arguments[0] if arguments else "")
    if command is None:
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        return command(list(arguments[1:]))
    except HostError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _packages(_: list[str]) -> int:
    install_packages(PlainLines())
    return 0


def _build(_: list[str]) -> int:
    parts = ensure_parts()
    sys.stdout.write(f"base  {parts.base}\nkit   {parts.kit}\nstore {parts.store}\n")
    return 0


def _ensure(_: list[str]) -> int:
    if reason := host.unfit():
        sys.stdout.write(f"{reason}; tests on whole machines are skipped\n")
        return 0
    install_packages(PlainLines())
    return _build([])


def _up(names: list[str]) -> int:
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with Bed(*(names or ["one"]), bed=_BED, shared=SHARED) as bed:
        for machine in bed.machines.values():
            _furnish(machine)
            named = machine.name if bed.name == _BED else f"{bed.name}/{machine.name}"
            sys.stdout.write(f"{machine.name}  {machine.address}  make enter MACHINE={named}\n")
        sys.stdout.write(_HOW)
        if has_cgroup_v1():
            sys.stdout.write(_CGROUP_V1)
        sys.stdout.flush()
        stopping.wait()
    return 0


def _furnish(machine: Machine) -> None:
    """Give a machine the command `kubewright` and a kubeadm.yaml for it."""
    machine.run("sh", "-c", f"cat > {COMMAND} && chmod 755 {COMMAND}", data=LAUNCHER)
    machine.run("sh", "-c", "cat > /root/kubeadm.yaml", data=KUBEADM.format(address=machine.address))


def _enter(arguments: list[str]) -> int:
    if not arguments:
        raise HostError("enter needs the name of a machine")
    machine, command = _machine(arguments[0]), arguments[1:]
    return subprocess.run(machine.argv(*(command or ["bash", "-l"])), check=False).returncode


def _machine(place: str) -> Machine:
    """Find a running machine by its place, `BED/NAME` or `NAME`. Raises HostError if there is none."""
    bed, _, name = place.rpartition("/")
    bed = bed or _BED
    machine = Machine(name, group=bed, places=MachinePlaces(beds() / bed / name), lower=(), namespace="", address="")
    if not machine.leader:
        raise HostError(f"there is no machine {name} in bed {bed}")
    return machine


def _copy(arguments: list[str]) -> int:
    """Copy with tar inside the machines, because a symbolic link of a machine must not lead to a file of the host."""
    split = [argument.partition(":") for argument in arguments]
    if len(split) < 2 or not all(colon for _, colon, _ in split):
        raise HostError("copy needs files and a machine: copy one:/etc/kubernetes/admin.conf two:")
    *sources, (target, _, directory) = split
    unpack = _machine(target).argv("tar", "-C", directory or ".", "-xf", "-")
    for source, _, file in sources:
        path = PurePosixPath(file)
        packed = subprocess.run(
            _machine(source).argv("tar", "-C", str(path.parent), "-chf", "-", path.name), stdout=subprocess.PIPE, check=False
        )
        if packed.returncode or subprocess.run(unpack, input=packed.stdout, check=False).returncode:
            raise HostError(f"{source}:{file} cannot be copied to {target}:{directory}")
    return 0


def _sweep(_: list[str]) -> int:
    for name in sweep():
        sys.stdout.write(f"removed {name}\n")
    return 0


_COMMANDS: Mapping[str, Callable[[list[str]], int]] = {
    "packages": _packages,
    "build": _build,
    "ensure": _ensure,
    "up": _up,
    "enter": _enter,
    "copy": _copy,
    "sweep": _sweep,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
