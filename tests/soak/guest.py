"""One machine without Kubernetes in a virtual host: `up`, `run COMMAND ...`, `pause`, `resume`, `cut`, `daemon`, `down`.

Runs there with the Python of kubewright's archive, and makes the machine as `up --machines` does. `daemon` starts a cluster's
daemon unless it runs, and prints its pid.
"""

from __future__ import annotations

import sys

from kubewright.base.clock import SystemClock
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.local.paths import cluster_paths
from kubewright.local.whole import down, kernel, members
from kubewright.local.whole.services import client
from kubewright.machines import group
from kubewright.machines.group import Group, Names
from kubewright.machines.parts import ensure_parts
from kubewright.machines.places import disks

NAME, MACHINE = "soak", "one"


def main(verb: str, *words: str) -> int:
    directory = disks() / NAME
    paths = cluster_paths(NAME)
    if verb == "daemon":
        waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
        client.ready(paths, client.start(paths, owner=0), waiter=waiter)
        sys.stdout.write(f"{client.status(paths)['pid']}\n")
        return 0
    if verb == "down":
        down.sweep(paths)  # the daemon has made exceptions in the host's firewalls, for the bridge of its cluster
        group.sweep(NAME, directory)
        return 0
    made = Group(
        NAME,
        directory=directory,
        network=group.claim_network(NAME, directory),
        members={MACHINE: 1},
        parts=ensure_parts(),
        names=Names(gateway=(members.HOST_NAME,)),
        shared=kernel.shared(),
        outside=True,
    )
    if verb in {"up", "resume"}:
        made.up()
        return 0
    machine = made.handle(MACHINE)
    if verb == "pause":
        machine.pause()
    elif verb == "cut":
        machine.cut_power()
    elif verb == "run":
        ended = machine.run(*words, check=False)
        sys.stdout.write(ended.out)
        sys.stderr.write(ended.err)
        return ended.code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
