"""The `version` command."""

from __future__ import annotations

import sys

import kubewright
from kubewright.base.level import KUBERNETES
from kubewright.cli.parser import Parsed


def version(parsed: Parsed) -> int:
    """Print the compatibility level as kubeadm prints its version; json and yaml have kubewright's own as one more key."""
    form = parsed.text("output")
    if form == "short":
        sys.stdout.write(f"{KUBERNETES}\n")
    elif form in {"json", "yaml"}:
        from kubewright.cli.output import write_result

        write_result({"clientVersion": _details(), "kubewrightVersion": kubewright.__version__}, form=form)
    else:
        shown = ", ".join(f'{key[0].upper()}{key[1:]}:"{value}"' for key, value in _details().items())
        sys.stdout.write(f"kubeadm version: &version.Info{{{shown}}} kubewright {kubewright.__version__}\n")
    return 0


def own(program: str) -> None:
    """Print our own version on one line, and the compatibility level behind it."""
    sys.stdout.write(f"{program} {kubewright.__version__} (Kubernetes {KUBERNETES})\n")


def _details() -> dict[str, str]:
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    machine = _machine()
    return {
        "major": major,
        "minor": minor,
        "gitVersion": KUBERNETES,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": f"cpython {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}",
        "platform": f"{sys.platform}/{machine}",
    }


def _machine() -> str:
    import os

    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
