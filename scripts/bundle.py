"""Make the archive that runs on a bare machine: dist/kubewright-VERSION-linux-ARCH.tar.gz (docs/decisions/0016-one-archive.md).

Run by the Python that goes into the archive, on Debian or one of its derivatives: `make bundle`. The tree:

    bin/kubewright           scripts/launcher.c; the same file again as libexec/python3
    libexec/kubewright       the C library's loader
    libexec/python3.X        the interpreter
    lib/*.so.*               the shared libraries that the interpreter, its modules and the packages need, including the C library
    lib/python3.X            the standard library; in its directory for packages everything from requirements.lock, and kubewright
    share/licenses, share/CONTENTS

The same sources, Python and Debian packages give the same bytes: entries are sorted, the only time is that of the last commit, and no names
of this machine are included.
"""

from __future__ import annotations

import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
OLDEST_GLIBC = (2, 34)
"""The loader takes --argv0 (2.33); looking up users and names by file and by DNS is in the library itself (2.34)."""

_ROW = "${Package} ${Version} (Debian, source ${source:Package} ${source:Version})\n"
DOCUMENTS, COMMON = Path("/usr/share/doc"), Path("/usr/share/common-licenses")
LEFT_OUT = (
    *("__pycache__", "test", "tests", "idlelib", "tkinter", "turtle.py", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "venv"),
    *("curses", "dist-packages", "site-packages", "config-*", "sitecustomize.py", "EXTERNALLY-MANAGED", "distutils"),
    *("readline.*", "nis.*", "_curses*", "_dbm.*", "_gdbm.*", "_tkinter.*", "ossaudiodev.*", "_test*", "_ctypes_test*", "_xx*", "xx*"),
)
"""Parts of the standard library that are left out: tests, developer tools, and modules that need libraries no command uses."""


def main() -> None:
    """Make the tree and the archive of it, and print the archive's path."""
    if platform.machine() not in ARCHITECTURES:
        fail(f"this machine is {platform.machine()}", f"make the archive on one of {', '.join(ARCHITECTURES)}")
    name = f"kubewright-{version()}-linux-{ARCHITECTURES[platform.machine()]}"
    tree = ROOT / "build" / "bundle" / name
    shutil.rmtree(tree.parent, ignore_errors=True)
    if tuple(int(part) for part in platform.libc_ver()[1].split(".")) < OLDEST_GLIBC:
        fail(f"the C library is {' '.join(platform.libc_ver())}", "make the archive on Debian 12 or Ubuntu 22.04, or on a later one")
    copy_python(tree)
    install_packages(tree)
    libraries = copy_libraries(tree)
    compile_launcher(tree)
    compile_modules(tree)
    describe(tree, libraries)
    archive = ROOT / "dist" / f"{name}.tar.gz"
    archive.parent.mkdir(exist_ok=True)
    pack(tree, archive)
    sys.stdout.write(f"{archive.relative_to(ROOT)} {archive.stat().st_size / 1e6:.0f} MB\n")


def version() -> str:
    """Return the version of the sources, without importing them."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/kubewright/__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        fail("src/kubewright/__init__.py has no version", "give it one")
    return found.group(1)


def fail(what: str, remedy: str) -> NoReturn:
    """Exit with an error that includes a hint."""
    sys.exit(f"error: {what}\nhint: {remedy}")


def run(*argv: str | Path) -> str:
    """Run a program, and return its output."""
    try:
        return subprocess.run([str(word) for word in argv], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    except FileNotFoundError:
        fail(f"{argv[0]} is not installed", "install it with the system's package manager")
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(str(word) for word in argv)} ended with {error.returncode}", "see what it said above")


def copy_python(tree: Path) -> None:
    """Copy the interpreter and its standard library."""
    (tree / "libexec").mkdir(parents=True)
    shutil.copyfile(Path(sys.executable).resolve(), tree / "libexec" / NAME)
    ignored = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(sysconfig.get_path("stdlib"), tree / "lib" / NAME, ignore=ignored, symlinks=False, ignore_dangling_symlinks=True)


def packages(tree: Path) -> Path:
    """Return the directory in which this interpreter looks for packages; Linux distributions use different names for it."""
    script = f"import site; print(*site.getsitepackages([{str(tree)!r}]), sep='\\n')"
    known = run(Path(sys.executable).resolve(), "-I", "-c", script).splitlines()  # not that of a virtual environment, which has other names
    return next(Path(path) for path in known if Path(path).parent == tree / "lib" / NAME)


def install_packages(tree: Path) -> None:
    """Install the packages of the lock file, and kubewright's wheel."""
    place = packages(tree)
    wheels = ROOT / "build" / "bundle" / "wheels"
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
    into = ("--target", place, "--no-deps", "--no-compile", "--only-binary", ":all:")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels)
    run(*pip, "install", *into, "--require-hashes", "-r", ROOT / "requirements.lock")
    shutil.rmtree(place / "bin")  # their first line contains the path of this machine's Python
    run(*pip, "install", *into, "--no-index", *wheels.glob("*.whl"))
    shutil.rmtree(place / "bin")
    for path in place.glob("*.dist-info/direct_url.json"):
        path.unlink()
    for path in place.glob("*.dist-info/RECORD"):  # it lists files that are now gone
        path.unlink()


def elf_files(tree: Path) -> Iterator[Path]:
    """Yield the programs and libraries of a tree."""
    for path in sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()):
        with path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                yield path


def copy_libraries(tree: Path) -> list[Path]:
    """Copy the libraries of this machine that programs and libraries of the tree need; returns where they came from."""
    needed: dict[str, Path] = {}
    for path in elf_files(tree):
        answer = run("ldd", path)
        if "not found" in answer:
            fail(f"{path} needs libraries that are not there:\n{answer}", "install them, or leave it out")
        for name, found in re.findall(r"^\t(\S+) (?:=> (.*) )?\(0x[0-9a-f]+\)$", answer, re.MULTILINE):
            source = Path(found or name)
            if source.is_absolute() and not source.resolve().is_relative_to(tree):
                needed[Path(name).name] = source
    loaders = [name for name in needed if name.startswith("ld-linux")]
    if len(loaders) != 1:
        fail(f"the loader of programs was not found among {', '.join(sorted(needed))}", "make the archive on Debian or Ubuntu")
    for name, source in needed.items():
        shutil.copyfile(source, tree / ("libexec/kubewright" if name in loaders else f"lib/{name}"))
    return sorted(set(needed.values()))


def compile_launcher(tree: Path) -> None:
    """Compile the launcher of Python, and install it in its two places."""
    launcher = tree / "bin" / "kubewright"
    launcher.parent.mkdir()
    flags = ("-Os", "-s", "-static", "-Wall", "-Wextra", "-Werror", "-Wl,--build-id=none", f'-DPYTHON="{NAME}"')
    run("gcc", *flags, "-o", launcher, ROOT / "scripts" / "launcher.c")
    os.link(launcher, tree / "libexec" / "python3")
    for path in (launcher, *(tree / "libexec").iterdir()):
        path.chmod(0o755)


def compile_modules(tree: Path) -> None:
    """Write byte code that Python uses without checking the source: times are not preserved, and nothing can be written later."""
    options = ("-q", "-q", "--invalidation-mode", "unchecked-hash", "-s", tree)
    run("env", "PYTHONHASHSEED=0", Path(sys.executable).resolve(), "-m", "compileall", *options, tree / "lib" / NAME)


def describe(tree: Path, libraries: Iterable[Path]) -> None:
    """Write the list of the archive's contents, with their licences; those of packages from PyPI are in their .dist-info."""
    licenses = tree / "share" / "licenses"
    (licenses / "kubewright").mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", licenses / "kubewright" / "LICENSE")
    owners = sorted(debian_packages([*libraries, Path(sys.executable).resolve(), Path(os.__file__).resolve()]))
    for name in owners:
        (licenses / name).mkdir()
        text = (DOCUMENTS / name / "copyright").read_text(encoding="utf-8")
        (licenses / name / "copyright").write_text(text, encoding="utf-8")
        for common in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])", text):
            (licenses / "common-licenses").mkdir(exist_ok=True)
            shutil.copyfile(COMMON / common, licenses / "common-licenses" / common)
    rows = [f"kubewright {version()}", f"CPython {platform.python_version()}"]
    rows += run("dpkg-query", "-W", "-f", _ROW, *owners).splitlines()
    for found in sorted(distributions(path=[str(packages(tree))]), key=lambda found: found.name.lower()):
        if found.name != "kubewright":
            rows.append(f"{found.name} {found.version} (PyPI): {license_of(found)}")
    (tree / "share" / "CONTENTS").write_text("\n".join(rows) + "\n", encoding="utf-8")


def debian_packages(paths: Iterable[Path]) -> set[str]:
    """Return the packages to which files belong. /lib may be a link to /usr/lib, and packages list their files under either name."""
    names = {path: {str(path), str(path.resolve()), f"/usr{path}", str(path.resolve()).removeprefix("/usr")} for path in paths}
    asked = ["dpkg-query", "-S", *sorted({name for known in names.values() for name in known})]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout  # it fails if one name of a file is unknown
    except FileNotFoundError:
        fail("dpkg is not installed: the licences of shared libraries are not known", "make the archive on Debian or Ubuntu")
    owners = {path: name.partition(":")[0] for name, _, path in (line.rpartition(": ") for line in answer.splitlines())}
    for path, known in names.items():
        if not known & set(owners):
            fail(f"no Debian package has {path}: its licence is not known", "make a new .venv with PYTHON=/usr/bin/python3")
    return set(owners.values())


def license_of(found: Distribution) -> str:
    """Return the licence that a package declares; its text is in its .dist-info."""
    given = found.metadata.json
    classifiers = [text.rpartition(":: ")[2] for text in given.get("classifier", ()) if text.startswith("License ::")]
    return str(given.get("license_expression") or "; ".join(classifiers) or str(given.get("license", "")).partition("\n")[0])


def pack(tree: Path, archive: Path) -> None:
    """Pack the tree: sorted, owned by root, readable by everybody, with the time of the last commit."""
    time = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct"))

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = time
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    partial = archive.with_suffix(".partial")
    with (
        partial.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=5, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in (tree, *sorted(tree.rglob("*"))):
            tar.add(path, str(path.relative_to(tree.parent)), recursive=False, filter=plain)
    partial.replace(archive)


if __name__ == "__main__":
    main()
