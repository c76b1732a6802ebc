"""A local cluster of which only etcd and the API server still run, for measuring other programs that work for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.bench import accounting
from tests.bench.admin import wait_for
from tests.bench.setup import Setup, kubernetes_directory

from kubewright.base import yaml

CONTROLLERS: Final = "kubewright-controllers"
PEER: Final = "kube-controller-manager"


def start(setup: Setup) -> tuple[Path, list[str]]:
    """Create a cluster and stop its controllers; returns its directory, and the command line of its kube-controller-manager."""
    state = setup.work / "state"
    directory = kubernetes_directory(state / "default")
    setup.run("up", "--state-dir", str(state), "--nodes", "0", "--controllers", "kubewright")
    manifests = directory / "manifests"
    peer: list[str] = yaml.load((manifests / f"{PEER}.yaml").read_text(encoding="utf-8"))["spec"]["containers"][0]["command"]
    for name in (PEER, CONTROLLERS, "kube-scheduler"):
        (manifests / f"{name}.yaml").unlink()
    daemon = int((state / "default" / "daemon.json").read_text(encoding="ascii").split(":")[0])
    wait_for("the controllers to end", lambda: len(accounting.children_of(daemon)) == 2)
    return directory, peer


def stop(setup: Setup) -> None:
    """Remove the cluster."""
    setup.run("down", "--state-dir", str(setup.work / "state"))
