"""Another patch level of Kubernetes without a second build: the version string in the programs is replaced by one of the same length.

Go stores the length of a string next to its pointer, so a string of the same length can replace it. The programs of
both levels behave in the same way; only the version that they report differs, and this is what upgrades between patch
levels are tested with.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kubewright.base.errors import HostError
from kubewright.base.records import replace
from kubewright.machines.images import Image, archive
from kubewright.machines.kit import PLACES, programs
from kubewright.machines.machine import Machine
from kubewright.machines.places import cache, locked, making


def renumber(content: bytes, old: str, new: str) -> bytes:
    """Return a program that reports another version.

    Raises ValueError for a version of another length, and for a program that does not contain the old one.
    """
    if len(old) != len(new):
        raise ValueError(f"{new} is not as long as {old}")
    if old.encode() not in content:
        raise ValueError(f"the program does not contain the version {old}")
    return content.replace(old.encode(), new.encode())


def program(source: Path, old: str, new: str) -> Path:
    """Return a copy of a program that reports another version, made once for each state of the source."""
    state = source.stat()
    place = cache() / f"levels-{new}" / f"{source.name}-{state.st_size}-{state.st_mtime_ns}"
    with locked(place.with_suffix(".lock")):  # several processes of a run need it at the same time
        if not place.exists():
            with making(place) as partial:
                partial.write_bytes(renumber(source.read_bytes(), old, new))
                partial.chmod(0o755)
    return place


def images(found: Sequence[Image], old: str, new: str) -> list[Image]:
    """Return the images with the tag `old` as images of another patch level: with the new tag, and with programs that report it."""
    return [renumbered(image, old, new) for image in found if image.reference.endswith(f":{old}")]


def renumbered(image: Image, old: str, new: str) -> Image:
    """Return an image with another version in its tag, and with programs that report it."""
    files = {name: program(path, old, new) if isinstance(path, Path) else path for name, path in image.files.items()}
    return replace(image, reference=image.reference.replace(old, new), files=files)


def give(machine: Machine, found: Sequence[Image]) -> None:
    """Load images into the container runtime of a running machine."""
    give_all([machine], found)


def give_all(machines: Sequence[Machine], found: Sequence[Image]) -> None:
    """Load images into the container runtimes of running machines, into all of them at the same time."""
    path = machines[0].root / "opt" / "image.tar"
    with ThreadPoolExecutor(len(machines)) as threads:
        for image in found:
            archive(image, path, compresslevel=0)  # it is read once: to compress it would take longer
            list(threads.map(partial(_load, path), machines))
            path.unlink()


def _load(path: Path, machine: Machine) -> None:
    """Load an archive of the host. Raises HostError if the container runtime refuses it."""
    argv = ("ctr", "-n", "k8s.io", "images", "import", "--local", "--snapshotter", "overlayfs", "-")
    with path.open("rb") as file, machine.start(*argv, stdin=file.fileno(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        said, _ = process.communicate()
    if process.returncode:
        raise HostError(f"{path.name} was not loaded on {machine.name}", detail=said.decode(errors="replace"))


def install(machine: Machine, name: str, old: str, new: str) -> None:
    """Replace a program of a machine by that of another patch level."""
    put(machine, name, program(programs((name,))[name].resolve(), old, new))


def put(machine: Machine, name: str, source: Path) -> None:
    """Replace a program of a machine in one step, as a package manager does."""
    target = machine.root / PLACES[name] / name
    partial = target.with_name(f".{name}")
    shutil.copyfile(source, partial)
    partial.chmod(0o755)
    partial.rename(target)
