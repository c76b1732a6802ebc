#!/usr/bin/env python3
"""Record a real session with a cluster of machines and draw a picture of it: docs/images/machines.svg.

Run it as root with the project's virtual environment: `.venv/bin/python -m scripts.record_machines`. It needs the parts
of machines and port 8080 of 127.0.0.1, and leaves no cluster running. The commands that the picture shows are run as they
are, each in a pseudo-terminal; between them, the script waits until pods are ready and have moved.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from scripts.record_up import SHOWN_AS, Screen, draw, record

from kubewright.machines.images import Image, archive
from kubewright.machines.parts import ensure_parts

CONFIG: Final = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
controllerManager:
  extraArgs: [{name: node-monitor-grace-period, value: 20s}]
apiServer:
  extraArgs: [{name: default-unreachable-toleration-seconds, value: "10"}, {name: default-not-ready-toleration-seconds, value: "10"}]
"""
"""Pods of a lost machine move after half a minute; by default, after six."""
_READY: Final = "kubectl wait --for=condition=Available deployment/web --timeout=10m >/dev/null"
_ADDRESS: Final = "kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}'"
_GONE: Final = "kubectl get pods -o wide --no-headers | grep -v Terminating"
STEPS: Final = (
    ("sudo kubewright preflight machines", ""),
    ("sudo kubewright up --machines --name dev --nodes 2 --config kubeadm.yaml", ""),
    ('eval "$(kubewright local env dev)"', ""),
    ("kubewright local load --name dev web.tar", ""),
    ("kubectl create deployment web --image=web:dev --replicas=2", ""),
    ("kubectl expose deployment web --type=LoadBalancer --port=80", _READY),
    (
        "kubewright local publish --name dev 8080:$(kubectl get service web -o jsonpath='{.spec.ports[0].nodePort}')",
        "until curl --silent --fail localhost:8080 >/dev/null; do sleep 0.5; done",
    ),
    ("curl localhost:8080", f'until curl --silent --fail "$({_ADDRESS})" >/dev/null; do sleep 0.5; done'),
    (f"curl $({_ADDRESS})", ""),
    ("kubewright local machine kill dev-worker-1", f'until [ "$({_GONE} | grep -c "Running.*dev-worker-2")" = 2 ]; do sleep 1; done'),
    ("kubectl get pods --field-selector=spec.nodeName=dev-worker-2", ""),
    ("sudo kubewright down --name dev", ""),
)
"""Commands of the picture, and what is done after each of them that it does not show."""


def main() -> None:
    """Record and draw."""
    parts, home = ensure_parts(), Path.home() / ".local" / "state"
    with tempfile.TemporaryDirectory(dir=home) as place:
        programs = Path(place) / "bin"
        programs.mkdir()
        for name, text in (("kubewright", f'exec {sys.executable} -m kubewright "$@"'), ("sudo", 'exec "$@"')):
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        (Path(place) / "kubeadm.yaml").write_text(CONFIG)
        busybox = (parts.base / "bin" / "busybox").resolve()
        page = Image(
            "docker.io/library/web:dev",
            {"bin/busybox": busybox, "www/index.html": b"a real pod\n"},
            links={"bin/httpd": "/bin/busybox"},
            entrypoint=("/bin/httpd", "-f", "-p", "80", "-h", "/www"),
        )
        archive(page, Path(place) / "web.tar")
        path = f"{programs}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "XDG_STATE_HOME": f"{place}/state", "TERM": "xterm-256color", "COLORTERM": ""}
        environment.pop("NO_COLOR", None)
        try:
            text = "\n".join(_step(shown, hidden, environment, place) for shown, hidden in STEPS)
        finally:
            subprocess.run(["kubewright", "down", "--name", "dev"], env=environment, check=True, stdout=subprocess.DEVNULL)
    draw(text.replace(f"{place}/state", SHOWN_AS), "machines.svg", title="kubewright up --machines")


def _step(shown: str, hidden: str, environment: dict[str, str], place: str) -> str:
    """Run one command and what follows it; returns what a terminal shows then."""
    prelude = (
        'eval "$(kubewright local env dev)" 2>/dev/null; ' if shown.startswith(("kubectl", "curl", "kubewright local publish")) else ""
    )
    screen = Screen()
    for piece in record(["bash", "-c", f"cd {place}; {prelude}{shown}"], environment):
        screen.feed(piece)
    if hidden:
        subprocess.run(["bash", "-c", f'eval "$(kubewright local env dev)"; {hidden}'], env=environment, check=True)
    return f"$ {shown}\n{screen.text()}".rstrip()


if __name__ == "__main__":
    main()
