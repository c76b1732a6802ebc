"""Commands that import little: `version`, `token generate`, `certs certificate-key`."""

from __future__ import annotations

import os
import sys

import kubewright
from kubewright.base.level import KUBERNETES
from kubewright.base.randomness import SystemRandom
from kubewright.cli.parsing.parser import Parsed


def version(parsed: Parsed) -> int:
    """Print the compatibility level as kubeadm prints its version.

    Json and yaml contain kubewright's own version as an additional key.
    """
    form = parsed.text("output")
    if form == "short":
        sys.stdout.write(f"{KUBERNETES}\n")
    elif form in {"json", "yaml"}:
        from kubewright.cli.printers.output import write_result

        write_result({"clientVersion": _details(), "kubewrightVersion": kubewright.__version__}, form=form)
    else:
        shown = ", ".join(f'{key[0].upper()}{key[1:]}:"{value}"' for key, value in _details().items())
        sys.stdout.write(f"kubeadm version: &version.Info{{{shown}}} kubewright {kubewright.__version__}\n")
    return 0


def own(program: str) -> None:
    """Print our own version on one line, followed by the compatibility level."""
    sys.stdout.write(f"{program} {kubewright.__version__} (Kubernetes {KUBERNETES})\n")


def _details() -> dict[str, str]:
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
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


def generate(parsed: Parsed) -> int:
    """Print a random bootstrap token; needs no cluster."""
    from kubewright import tokens  # loads modules that `version` does not need

    form, token = parsed.text("output"), tokens.generate(SystemRandom()).text
    if form == "text":
        sys.stdout.write(f"{token}\n")
    else:
        from kubewright.cli.printers.output import OUTPUT_VERSION, write_result

        write_result({"kind": "BootstrapToken", "apiVersion": OUTPUT_VERSION, "token": token}, form=form)
    return 0


KEY_SIZE = 32
"""Bytes of an AES-256 key, for `pki.encryption.sealing`."""


def certificate_key(parsed: Parsed) -> int:
    """Print a random key for sealing uploaded certificates, 64 hexadecimal digits."""
    form, key = parsed.text("output"), SystemRandom().token_bytes(KEY_SIZE).hex()
    if form == "text":
        sys.stdout.write(f"{key}\n")
    else:
        from kubewright.cli.printers.output import write_result

        write_result({"certificateKey": key}, form=form)
    return 0
