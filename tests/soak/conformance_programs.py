"""The programs of Kubernetes' end-to-end tests, built from the modules of our own Kubernetes version, once for each state of them.

ginkgo runs the tests of e2e.test in several processes; agnhost and nonewprivs are programs of the images that tests use.
The go.mod below modules is that of src/kubewright/binaries with these packages as tools.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kubewright.base.level import KUBERNETES
from kubewright.base.versions import Version
from kubewright.binaries import golang
from kubewright.binaries.build import Child, failure, linker_flags
from kubewright.binaries.golang import MODULE_FILES
from kubewright.binaries.table import KUBERNETES as FAMILY
from kubewright.binaries.table import native_architecture
from kubewright.machines.places import cache

MODULES: Final = Path(__file__).parent / "modules"
_VERBS: Final = (
    ("e2e.test", ("test", "-c", "-vet=off"), "k8s.io/kubernetes/test/e2e"),
    ("ginkgo", ("build",), "github.com/onsi/ginkgo/v2/ginkgo"),
    ("agnhost", ("build",), "k8s.io/kubernetes/test/images/agnhost"),
    ("nonewprivs", ("build",), "k8s.io/kubernetes/test/images/nonewprivs"),
)
_PORTER: Final = "k8s.io/kubernetes/test/images/agnhost/porter"
CERTIFICATE: Final = ("localhost.crt", "localhost.key")
"""What agnhost serves https with: files of its sources, in the directory of this package."""


def ensure_programs() -> Path:
    """Return the directory of the programs; the first time they are built, which takes some minutes. Raises BinariesError, DiskFull."""
    module = golang.find_module(FAMILY, Version.parse(KUBERNETES), root=MODULES)
    go = golang.find_go(os.environ, need=module.go)
    flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={linker_flags(FAMILY, module)}")
    contents = [(module.path / name).read_bytes() for name in MODULE_FILES]
    digest = hashlib.sha256(b"\0".join([repr((str(go), flags, _VERBS, CERTIFICATE)).encode(), *contents])).hexdigest()[:12]
    place = cache() / f"conformance-{digest}"
    if not place.exists():
        partial = place.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, verb, package in _VERBS:
            _say(f"building {name} {KUBERNETES} from {package}")
            _run((go.path, *verb, *flags, "-o", str(partial / name), package), name=name, directory=module.path)
        sources = _run((go.path, "list", "-mod=readonly", "-f", "{{.Dir}}", _PORTER), name="agnhost", directory=module.path)[-1]
        for name in CERTIFICATE:
            shutil.copyfile(Path(sources, name), partial / name)
        partial.rename(place)
    return place


def _run(argv: Sequence[str], *, name: str, directory: Path) -> list[str]:
    """Run a command of Go, show what it prints, and return its last lines. Raises BinariesError with them if it fails."""
    environment = golang.build_environment(os.environ, family=FAMILY, architecture=native_architecture(), offline=False)
    child = Child(argv, cwd=directory, environment=environment)
    code = child.run(line=_say)
    if code:
        raise failure(name, code, list(child.lines))
    return list(child.lines)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
