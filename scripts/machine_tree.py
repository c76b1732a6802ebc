"""Make a machine tree: dist/machine-KUBERNETES-ARCH.tar.zst, and its SHA-256 (docs/decisions/0035-machine-trees.md).

    python -m scripts.machine_tree [KUBERNETES_VERSION]

It has everything that whole machines are made of, so that a host needs neither debootstrap nor Go nor a C compiler. The
parts come from the cache, or are made. The same Debian packages, programs and zstd give the same bytes: entries are
sorted; times after those of the packages' files, caches, logs, backups, identities of machines, and the address of the
mirror are left out.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NoReturn

from kubewright import binaries
from kubewright.base.errors import KubewrightError
from kubewright.base.level import KUBERNETES
from kubewright.binaries.table import native_architecture
from kubewright.cli.printers.reporters import PlainLines
from kubewright.machines import base, images, kit
from kubewright.machines.tree import contents

ROOT: Final = Path(__file__).resolve().parents[1]
LEVEL: Final = 12
"""Of zstd."""
EMPTIED: Final = ("dev", "proc", "run", "sys", "tmp", "var/cache", "var/lib/apt", "var/log", "var/tmp")
"""Directories of the Debian tree of which only the directories in them are kept."""
LEFT_OUT: Final = re.compile(
    r"etc/(apt/sources\.list(\.d/.*)?|hostname|resolv\.conf|\.pwd\.lock|(passwd|shadow|group|gshadow|subuid|subgid)-)"
    r"|var/lib/dpkg/.*-old|var/lib/(dbus/machine-id|systemd/random-seed|systemd/catalog/database)"
)
EMPTY: Final = "etc/machine-id"
SHADOW: Final = "etc/shadow"
LICENSE_FILE: Final = re.compile(r"(?i)(licen[cs]e|copying|notice|patents|unlicense)([.-].*)?")
_OWN: Final = "kubewright"


def main(arguments: list[str]) -> None:
    """Make the file, and print its name, size and digest."""
    version, architecture = arguments[0] if arguments else KUBERNETES, native_architecture()
    reporter, sources = PlainLines(), binaries.sources_from(os.environ)
    target = ROOT / "dist" / contents.file_name(version=version, architecture=architecture)
    try:
        tree = base.ensure_base(reporter)
        paths = kit.programs(contents.NAMES, version=version, sources=sources, reporter=reporter)
        pause = images.ensure_pause()
        wanted = contents.expected(version=version, architecture=architecture)
    except KubewrightError as error:
        fail(str(error), error.remedy)
    target.parent.mkdir(exist_ok=True)
    digest = write(
        target, tree=tree, programs={**paths, contents.PAUSE: pause}, licenses=licenses(paths), described=contents.encode(wanted)
    )
    sys.stdout.write(f"{target.relative_to(ROOT)} {target.stat().st_size / 1e6:.0f} MB sha256:{digest}\n")


def fail(what: str, remedy: str) -> NoReturn:
    """Exit with an error that includes a hint."""
    sys.exit(f"error: {what}\nhint: {remedy}")


def write(
    target: Path, *, tree: Path, programs: Mapping[str, Path], licenses: Mapping[str, bytes], described: bytes, level: int = LEVEL
) -> str:
    """Write a machine tree and its digest, which is returned."""
    partial, newest = target.with_suffix(".partial"), newest_of_packages(tree)
    argv = ("zstd", "--quiet", "--force", f"-{level}", "-T0", "-o", str(partial))  # any number of threads gives the same bytes
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as compressor:
        assert compressor.stdin is not None
        with compressor.stdin as pipe, tarfile.open(fileobj=pipe, mode="w|", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
            add(tar, contents.CONTENTS, described)
            for entry, source in entries(tree, newest=newest):
                put(tar, entry, source)
            for name, text in sorted(licenses.items()):
                add(tar, f"{contents.LICENSES}/{name}", text)
            for name, path in sorted(programs.items()):
                inside = name if name == contents.PAUSE else f"{contents.PROGRAMS}/{name}"
                put(tar, regular(inside, path.stat().st_size, mode=0o755), path)
    if compressor.returncode:
        fail("zstd did not succeed", "see what it said above")
    with partial.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target.with_name(target.name + contents.DIGEST_SUFFIX).write_text(f"{digest}  {target.name}\n", encoding="ascii")
    partial.replace(target)
    return digest


def entries(tree: Path, *, newest: int) -> Iterator[tuple[tarfile.TarInfo, Path | bytes | None]]:
    """Yield the entries of the Debian tree with their contents, sorted, and directories before what is in them."""
    paths = [path for path in tree.rglob("*") if is_kept(path.relative_to(tree).as_posix(), is_directory=_is_directory(path))]
    for path in (tree, *sorted(paths)):
        inside, status = path.relative_to(tree).as_posix(), path.lstat()
        entry = tarfile.TarInfo(contents.BASE if path == tree else f"{contents.BASE}/{inside}")
        entry.uid, entry.gid, entry.mode, entry.mtime = (
            status.st_uid,
            status.st_gid,
            status.st_mode & 0o7777,
            min(int(status.st_mtime), newest),
        )
        source: Path | bytes | None = None
        if path.is_symlink():
            entry.type, entry.linkname = tarfile.SYMTYPE, relative(inside, str(path.readlink()))
            entry.mode = 0o777
        elif path.is_dir():
            entry.type = tarfile.DIRTYPE
            entry.mtime = newest
        else:
            source = changed(inside, path, newest=newest)
            entry.size = len(source) if isinstance(source, bytes) else status.st_size
        yield entry, source


def is_kept(inside: str, *, is_directory: bool) -> bool:
    """Return whether a path of the Debian tree is in the file."""
    emptied = any(inside.startswith(f"{name}/") for name in EMPTIED)
    return is_directory if emptied else not LEFT_OUT.fullmatch(inside)


def relative(inside: str, link: str) -> str:
    """Return where a symbolic link leads, without naming the root: in another file system, that is another directory."""
    return os.path.relpath(link, "/" + str(PurePosixPath(inside).parent)) if link.startswith("/") else link


def changed(inside: str, path: Path, *, newest: int) -> Path | bytes:
    """Return the content of a file, without what differs between two installations of the same packages."""
    if inside == EMPTY:
        return b""
    if inside == SHADOW:  # the third field is the day on which a password was set
        rows = [line.split(":") for line in path.read_text(encoding="utf-8").splitlines()]
        return "".join(":".join([*row[:2], str(newest // 86400), *row[3:]]) + "\n" for row in rows).encode()
    return path


def newest_of_packages(tree: Path) -> int:
    """Return the time of the newest file that is unchanged from its package (dpkg's lists of digests); later times differ between trees."""
    names = (
        line.split("  ", 1)[1]
        for listed in (tree / "var/lib/dpkg/info").glob("*.md5sums")
        for line in listed.read_text(encoding="utf-8").splitlines()
    )
    return max((int(path.lstat().st_mtime) for name in names if (path := tree / name).is_file()), default=0)


def licenses(programs: Mapping[str, Path]) -> dict[str, bytes]:
    """Return the licences of programs and of all modules in them, by path, from Go's module cache; and which program has which module."""
    cache = Path(go("env", "GOMODCACHE").strip())
    found = {f"{_OWN}/LICENSE": (ROOT / "LICENSE").read_bytes(), "go/LICENSE": (Path(go("env", "GOROOT").strip()) / "LICENSE").read_bytes()}
    known = set[tuple[str, str]]()
    for name, path in sorted(programs.items()):
        modules = modules_in(go("version", "-m", str(path)))
        found[f"{name}.modules"] = "".join(f"{module} {version}\n" for module, version in modules).encode()
        known.update(modules)
    for module, version in sorted(known):
        directory = cache / f"{escaped(module)}@{escaped(version)}"
        if not directory.is_dir():
            go("mod", "download", f"{module}@{version}")
        files = [path for path in sorted(directory.iterdir()) if path.is_file() and LICENSE_FILE.fullmatch(path.name)]
        if not files:
            fail(f"the licence of {module} {version} is not known", f"see {directory}")
        found |= {f"{module}@{version}/{path.name}": path.read_bytes() for path in files}
    return found


def modules_in(text: str) -> list[tuple[str, str]]:
    """Read the modules of a program, as `go version -m` prints them: what replaces another module counts instead of it."""
    rows = [line.split("\t") for line in text.splitlines()]
    found = list[tuple[str, str]]()
    for row in rows:
        if row[1:2] in (["mod"], ["dep"]):
            found.append((row[2], row[3]))
        elif row[1:2] == ["=>"]:
            found[-1] = (row[2], row[3])
    return sorted(found)


def escaped(text: str) -> str:
    """Return a path or version as Go's module cache spells it: `!a` for `A` (golang.org/x/mod, module/module.go)."""
    return re.sub("[A-Z]", lambda letter: f"!{letter[0].lower()}", text)


def go(*words: str) -> str:
    """Run Go, and return its output."""
    try:
        return subprocess.run(["go", *words], cwd="/", check=True, stdout=subprocess.PIPE, text=True).stdout
    except FileNotFoundError:
        fail("go is not installed, which knows the licences of programs", "install Go (https://go.dev/dl)")
    except subprocess.CalledProcessError as error:
        fail(f"go {' '.join(words)} ended with {error.returncode}", "see what it said above")


def regular(name: str, size: int, *, mode: int) -> tarfile.TarInfo:
    """Return the entry of a file that belongs to root and has the time 0."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a small file."""
    put(tar, regular(name, len(content), mode=0o644), content)


def put(tar: tarfile.TarFile, entry: tarfile.TarInfo, source: Path | bytes | None) -> None:
    """Add an entry with its content."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            tar.addfile(entry, file)
    else:
        tar.addfile(entry, None if source is None else io.BytesIO(source))


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


if __name__ == "__main__":
    main(sys.argv[1:])
