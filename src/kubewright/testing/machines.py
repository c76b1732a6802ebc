"""Clusters of whole machines in tests: whether this host can run them, and loading images into them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from kubewright import binaries
from kubewright.base.errors import HostError, UsageError
from kubewright.base.messages import quoted
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.local.whole import preflight

_ENGINES: Final = ("docker", "podman")


def unavailable(binaries_dir: str = "") -> str:
    """Return why this host cannot run whole machines, '' if it can."""
    errors = preflight.examine(_host(binaries_dir)).errors
    return f"no whole machines on this host: {'; '.join(str(found) for _, found in errors)}" if errors else ""


def require(binaries_dir: str = "") -> None:
    """Require that this host can run whole machines. Raises CheckFailed with what it lacks."""
    preflight.require(_host(binaries_dir))


def _host(binaries_dir: str) -> preflight.Subject:
    return preflight.this_host(binaries.sources_from(os.environ, directory=binaries_dir or None))


def load(cluster: LocalCluster, image: str | os.PathLike[str]) -> list[str]:
    """Load an image into all machines of a cluster: an archive at a path, or an image of Docker or Podman; returns the names of the images.

    Raises UsageError if there is neither, HostError if the engine or a machine refuses the image.
    """
    if Path(image).is_file():
        return cluster.load(Path(image))
    engine = next((found for name in _ENGINES if (found := shutil.which(name))), None)
    if engine is None:
        raise UsageError(
            f"{quoted(str(image))} is not a file, and neither {' nor '.join(_ENGINES)} is on PATH",
            remedy="pass the path of an archive of the image",
        )
    with tempfile.TemporaryDirectory(prefix="kubewright-image-") as directory:
        archive = Path(directory) / "image.tar"
        argv = (engine, "save", "--output", str(archive), str(image))
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if ended.returncode:
            raise HostError(
                f"{Path(engine).name} cannot save the image {quoted(str(image))}",
                detail=ended.stderr.decode(errors="replace").strip(),
                remedy=f"build it first: `{Path(engine).name} build --tag {image} .`",
            )
        return cluster.load(archive)
