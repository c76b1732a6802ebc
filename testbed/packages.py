"""The packages that tests on whole machines need on the host."""

from __future__ import annotations

import subprocess

from kubewright.base.errors import HostError
from kubewright.base.events import Reporter
from kubewright.machines import host
from kubewright.machines.running import run, step

PACKAGES = (*("systemd-container", "debootstrap", "iproute2", "zstd"), *("gcc", "libc6-dev", "libseccomp-dev", "pkg-config"))


def missing_packages() -> list[str]:
    """Return the packages that are not installed."""
    asked = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *PACKAGES]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    return [name for name in PACKAGES if f"{name} installed" not in said]


def install_packages(reporter: Reporter) -> None:
    """Install with apt what the machines need and this host lacks. Raises HostError on an unsuitable host."""
    if reason := host.unfit():
        raise HostError(reason)
    missing = missing_packages()
    if not missing:
        return
    with step(reporter, f"installing {', '.join(missing)}", takes="seconds"):
        run("apt-get", "update", "-qq")
        run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES)
