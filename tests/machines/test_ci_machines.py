"""The scripts of action.yml and of the GitLab template for clusters of machines, run unchanged.

Only downloads are replaced: packages of Python come from this environment, those of Debian are installed already.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from archive_kit import archive
from whole_kit import Cluster

from ci_kit import ROOT, bash, jobs, lines, run_action
from kubewright import binaries
from kubewright.machines.parts import Parts
from kubewright.machines.places import cache


def environment(place: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHON"))}
    sources = binaries.sources_from(os.environ).cache.parent
    offline = {"KUBEWRIGHT_CACHE_DIR": str(sources), "KUBEWRIGHT_OFFLINE": "1", "KUBEWRIGHT_NO_BUILD": "1", "PIP_NO_INDEX": "1"}
    return {**kept, **offline, "HOME": str(place), **more}


def test_the_action_provides_a_machine_to_later_steps(parts: Parts, place: Path) -> None:
    archive()  # `make bundle` has made it
    given = environment(place, XDG_CACHE_HOME=str(cache().parents[1]), XDG_STATE_HOME=str(place / "state"))
    cluster = Cluster("ci", place / "state")
    try:
        files = run_action({"machines": "true", "wait": "20m"}, given, place)
        given["KUBECONFIG"] = files["GITHUB_ENV"].read_text().strip().removeprefix("KUBECONFIG=")
        assert files["GITHUB_OUTPUT"].read_text() == f"kubeconfig={given['KUBECONFIG']}\n"
        given["PATH"] = f"{files['GITHUB_PATH'].read_text().strip()}:{given['PATH']}"
        rows = bash("kubewright local list", given, place)
        assert re.search(r"^ci +Ready", rows, re.MULTILINE), rows
    finally:
        bash(f"{place}/kubewright/bin/kubewright down --name ci", given, place)
    assert cluster.traces() == []


def test_the_job_of_gitlab_has_a_machine_and_leaves_none(parts: Parts, place: Path) -> None:
    job, base = jobs()[".kubewright-machines"], jobs()[".kubewright"]
    assert job["extends"] == ".kubewright"
    variables = {**base["variables"], **job["variables"]}
    assert variables["KUBEWRIGHT_PACKAGE"] == "kubewright[cri]"
    (place / "bin").mkdir()
    (place / "bin" / "apt-get").write_text('#!/bin/sh\necho "$@" >>"$HOME/apt.log"\n')
    (place / "bin" / "apt-get").chmod(0o755)
    kept = place / ".kubewright" / "cache"  # the parts, which the job would make
    kept.mkdir(parents=True)
    (kept / "kubewright").symlink_to(cache().parent)
    place.chmod(0o777)  # as GitLab does
    given = environment(
        place, CI_PROJECT_DIR=str(place), PIP_FIND_LINKS=str(wheels(place / "wheels")), PATH=f"{place}/bin:{os.environ['PATH']}"
    )
    given |= {name: text.replace("$CI_PROJECT_DIR", str(place)) for name, text in variables.items()}
    cluster = Cluster("ci", place / ".kubewright" / "state")
    try:
        # a runner of GitLab runs before_script and script in one shell
        listed = ["set -e", *lines(job["before_script"]), 'test -f "$KUBECONFIG"', "kubewright local list"]
        rows = bash("\n".join(listed), given, place)
        assert re.search(r"^ci +Ready", rows, re.MULTILINE), rows
    finally:
        bash("\n".join(base["after_script"]), given, place)
    assert "install --quiet --yes --no-install-recommends systemd-container debootstrap iproute2 zstd" in (place / "apt.log").read_text()
    assert cluster.traces() == []


def wheels(directory: Path) -> Path:
    """Make a directory of wheels: kubewright, and the packages of this environment that it needs."""
    directory.mkdir()
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    for name in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==", (ROOT / "requirements.lock").read_text(), re.MULTILINE):
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another Python
            continue
        tag = re.search(r"^Tag: (\S+)", found.read_text("WHEEL") or "", re.MULTILINE)
        assert tag is not None, name
        top = next(file.parts[0] for file in found.files or () if file.parts[0].endswith(".dist-info"))
        with zipfile.ZipFile(directory / f"{top.removesuffix('.dist-info')}-{tag[1]}.whl", "w") as wheel:
            for file in found.files or ():
                if ".." not in file.parts and file.suffix != ".pyc" and file.name not in {"INSTALLER", "REQUESTED", "direct_url.json"}:
                    wheel.write(found.locate_file(file), str(file))
    return directory
