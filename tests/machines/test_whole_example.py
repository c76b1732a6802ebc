"""The example project of the guide with machines: the image of its operator runs as a pod."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from guide import GUIDE
from kubewright.machines import oci
from kubewright.machines.parts import Parts
from plugin_kit import Project, remove_all

PYTHON = ("usr/bin/python3.11", "usr/bin/python3", "usr/lib/python3.11", "usr/lib/x86_64-linux-gnu", "usr/lib64", "lib", "lib64", "etc/ssl")
"""The interpreter of the machines' tree, which is that of python:3.11-slim."""
DOCKER = """\
#!/bin/sh
[ "$1 $2 $4" = "save --output quotas:dev" ] && cp {archive} "$3"
"""


def test_the_operator_of_the_example_runs_as_a_pod(parts: Parts, place: Path) -> None:
    shutil.copytree(GUIDE / "example-pytest", place / "example")
    project = Project(place / "example")
    image(parts, project.root / "image.tar")
    (project.root / "bin").mkdir()
    (project.root / "bin" / "docker").write_text(DOCKER.format(archive=project.root / "image.tar"))
    (project.root / "bin" / "docker").chmod(0o755)
    path = f"{project.root / 'bin'}:{project.environment()['PATH']}"
    try:
        done = project.run(
            "--kubewright-need-machines",
            "-o",
            "kubewright_nodes=0",
            "-o",
            "kubewright_wait=20m",
            "-k",
            "gives_a_team_its_quota",
            PATH=path,
        )
        assert done.code == 0, done.out
        assert done.counts() == {"passed": 1}
        assert project.left() == []
    finally:
        remove_all(project)


def image(parts: Parts, target: Path) -> None:
    """Write what the example's Dockerfile makes, with the packages of this environment."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", dereference=False) as tar:
        oci.add_directory(tar, "tmp", mode=0o1777)
        for part in PYTHON:
            tar.add(parts.base / part, part)
        for name in packages("lightkube"):
            found = distribution(name)
            tops = {file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}}
            for top in sorted(tops):
                tar.add(found.locate_file(top), f"usr/lib/python3/dist-packages/{top}")
        tar.add(GUIDE / "example-pytest" / "quotas.py", "quotas.py")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/bin:/bin"], "Entrypoint": ["python3", "/quotas.py"]},
    }
    oci.write(target, reference="docker.io/library/quotas:dev", layer=stream.getvalue(), config=config)


def packages(name: str, known: set[str] | None = None) -> set[str]:
    """Return an installed package and those that it needs."""
    known = set() if known is None else known
    try:
        needed = distribution(name).requires or []
    except PackageNotFoundError:  # for another Python or another system
        return known
    if name not in known:
        known.add(name)
        for text in needed:
            if "extra ==" not in text and (match := re.match(r"[A-Za-z0-9._-]+", text)):
                packages(match[0], known)
    return known
