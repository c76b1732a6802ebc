"""The archive of `make bundle` and the image of `make image`, which must contain the sources that are tested."""

from __future__ import annotations

import platform
import shutil
import tarfile
from pathlib import Path

import pytest

import kubewright
from kubewright.machines.machine import Machine

ROOT = Path(__file__).parents[2]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
REFERENCE = f"localhost/kubewright:{kubewright.__version__}"
"""What `make image` calls the image."""
NAME = f"kubewright-{kubewright.__version__}-linux-{ARCHITECTURE}"


def archive() -> Path:
    """Return the archive. Skips if there is none; an archive of other sources is a failure."""
    found = ROOT / "dist" / f"{NAME}.tar.gz"
    if not found.exists():
        pytest.skip(f"no {found.relative_to(ROOT)}: make bundle")
    sources = ROOT / "src" / "kubewright"
    here = {str(path.relative_to(sources)): path.read_bytes() for path in sources.rglob("*.py")}
    packed = {}
    with tarfile.open(found) as tar:
        for entry in tar:
            _, inside, name = entry.name.partition("-packages/kubewright/")
            if inside and name.endswith(".py") and (file := tar.extractfile(entry)) is not None:
                packed[name] = file.read()
    assert len(here) > 100
    assert [name for name in here if packed.get(name) != here[name]] == [], "the archive is of other sources: make bundle"
    return found


def image() -> Path:
    """Return the image of the archive."""
    found = ROOT / "dist" / f"{NAME}.oci.tar"
    if not found.exists():
        pytest.skip(f"no {found.relative_to(ROOT)}: make image")
    assert found.stat().st_mtime >= archive().stat().st_mtime, "the image is of another archive: make image"
    return found


def give_image(machine: Machine) -> None:
    """Import the image into the container runtime of a machine."""
    shutil.copyfile(image(), machine.root / "opt" / "image.tar")
    machine.run("ctr", "-n", "k8s.io", "images", "import", "/opt/image.tar")
