"""Warnings about a user's arguments for components before these start: unknown and deprecated flags, wrong values, host files.

kubeadm passes them on unchecked since v1.12; before, its preflight check ExtraArgs parsed them and warned about files.
All findings are warnings, because a patch release may have a flag that the table lacks. The table is
`component_flags.txt` in this directory: the flags of each component in each minor release. `python -m
tests.compat.flag_collecting` generates it from real binaries, and tests/compat/test_component_flags.py compares it with
them.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from kubewright.apis import formats
from kubewright.apis.findings import MOST_SHOWN, closest, shown
from kubewright.apis.kubeadm.arguments import KUBELET, Given
from kubewright.apis.kubeadm.removed import argument_hint
from kubewright.apis.kubeadm.types import Arg, ClusterConfiguration, Configuration, HostPathMount, LocalEtcd
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base.durations import Duration
from kubewright.base.messages import quoted
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, field
from kubewright.base.versions import OWN, Version, release_for
from kubewright.manifests import argument_values, pods
from kubewright.manifests.argument_values import NOT_STARTED
from kubewright.manifests.pods import Inputs
from kubewright.manifests.static_pods import COMPONENTS
from kubewright.pki.table import CERTIFICATES, KUBECONFIGS

FLAG_TABLE: Final = Path(__file__).with_name("component_flags.txt")
_EVERY: Final = "*"

ETCD: Final = "etcd"
_READ: Final = Pattern(r"(?:^|-)(?:file|cafile|certfile|keyfile|kubeconfig|config|conf|certificate|authority|cacert|cert|key)$")
_WRITTEN: Final = Pattern(r"(?:^|-)(?:dir|path|write-config-to)$")
_TEXTS: Final = frozenset({"", "string", "strings", "stringArray", "namedCertKey"})
_MADE_BY_THE_KUBELET: Final = frozenset({"DirectoryOrCreate", "FileOrCreate"})
_INTEGER: Final = Pattern(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|[0-9]+)", re.ASCII)
_BOOLS: Final = frozenset(["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"])


@dataclass(frozen=True)
class ComponentFlag:
    """A flag of a component: its type as in the component's help ('' if the help has none), and why it is deprecated."""

    type: str
    deprecated: str = ""


@dataclass(frozen=True, kw_only=True)
class ComponentFlags:
    """The flags of one component in one minor release, and further flags with the releases that have them."""

    component: str
    line: str
    flags: Mapping[str, ComponentFlag]
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@functools.cache
def flag_table() -> str:
    """Return the table. It is read once: `--rootfs` does so while the package is still reachable."""
    return FLAG_TABLE.read_text(encoding="utf-8")


def flags_of(component: str, line: str) -> ComponentFlags | None:
    """Return the flags of a component in a minor release such as `1.36`; None if the table does not have it."""
    rows = iter(flag_table().splitlines())
    lines = next((head[1:] for row in rows if row.startswith("[") and (head := row[1:-1].split())[0] == component), None)
    if lines is None or line not in lines:
        return None
    words: dict[str, str] = {}
    flags: dict[str, ComponentFlag] = {}
    elsewhere: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row.startswith("["):
            break
        name, *rest = row.split("\t")
        if name.startswith("@"):
            words[name] = rest[0]
            continue
        kind, of, key = (*rest, "")[:3]
        if of == _EVERY or line in of.split(","):
            flags[name] = ComponentFlag(kind, words.get(key, ""))
        else:
            elsewhere[name] = (*elsewhere.get(name, ()), *of.split(","))
    return ComponentFlags(component=component, line=line, flags=flags, elsewhere=elsewhere)


def _is_duration(text: str) -> bool:
    try:
        Duration.parse(text)
    except ValueError:
        return False
    return True


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_TYPES: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "bool": (_BOOLS.__contains__, "true or false"),
    "duration": (_is_duration, "a duration such as 1h30m"),
    "int": (lambda text: _INTEGER.fullmatch(text) is not None, "an integer"),
    "int32": (lambda text: _INTEGER.fullmatch(text) is not None, "an integer"),
    "float": (_is_float, "a number"),
    "float32": (_is_float, "a number"),
    "ip": (lambda text: formats.address(text) is not None, "an IP address"),
}
"""Types whose values are checked as Go parses them: the check, and the type's description."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The context in which arguments are checked.

    - `configuration`: of a control plane; None for a machine that joins, for which only the kubelet's arguments are
      checked.
    - `layout` contains the effective directories, including certificatesDir and etcd's dataDir.
    - `look` returns facts of the machine; it is called only for arguments that name files.
    - `exists` returns whether a path of the host exists.
    """

    configuration: Configuration | None
    layout: Layout
    look: Callable[[], Detected]
    exists: Callable[[str], bool]

    def line(self, component: str) -> str:
        """Return the minor release of a component; '' if it is unknown because the user chose an image of etcd."""
        cluster = self.configuration.cluster if self.configuration else None
        version = Version.parse(cluster.kubernetes_version) if cluster else OWN
        if component != ETCD:
            return version.line
        return _etcd_line(cluster, version) if cluster else ""

    def mounts(self, component: str) -> list[HostPathMount]:
        """Return the mounts of a component's static pod."""
        if self.configuration is None:
            return []
        endpoint = self.configuration.init.local_api_endpoint
        inputs = Inputs(
            configuration=self.configuration,
            layout=self.layout,
            addresses=Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port),
            detected=self.look(),
        )
        row = COMPONENTS[component]
        settings = row.settings(inputs)
        return pods.merged(row.mounts(inputs), () if isinstance(settings, LocalEtcd) else settings.extra_volumes)

    @property
    def patched(self) -> bool:
        """Whether static pods may be changed by patches, so that they may have other mounts."""
        return self.configuration is not None and bool(self.configuration.init.patches_directory)

    def made(self) -> frozenset[str]:
        """Return the files that kubewright itself creates: they may still be missing."""
        pki = (str(self.layout.pki / name) for row in CERTIFICATES for name in row.files)
        kubernetes = (str(self.layout.kubernetes / row.file) for row in KUBECONFIGS)
        kubelet = (str(self.layout.kubelet_config), str(self.layout.kubernetes / "bootstrap-kubelet.conf"))
        return frozenset((*pki, *kubernetes, *kubelet))


def warnings(given: Iterable[Given], surroundings: Surroundings) -> list[str]:
    """Return the warnings about arguments, in their order."""
    said = (f"{one.path}: {text}" for one in given for text in _of_component(one, surroundings))
    return [*islice(said, MOST_SHOWN)]


def _of_component(given: Given, around: Surroundings) -> Iterator[str]:
    known = flags_of(given.component, around.line(given.component))
    for argument in given.arguments:
        name = argument.name if given.component == ETCD else argument.name.replace("_", "-")  # component-base normalizes names like this
        if known is None:
            yield from _about_files(given.component, name, ComponentFlag(""), argument, around)
        elif name in known.flags:
            yield from _about_value(known, name, argument)
            yield from _about_files(given.component, name, known.flags[name], argument, around)
        else:
            yield _unknown(known, name)
    if known is not None and given.component != ETCD:
        yield from argument_values.problems(argument_values.Arguments.of(given.component, known.line, given.arguments))


def _unknown(known: ComponentFlags, name: str) -> str:
    said = f"{known.component} {known.line} has no flag --{name} {NOT_STARTED}"
    gone = argument_hint(known.component, name)
    if gone:
        return f"{said}; {gone}"
    if name in known.elsewhere:
        return f"{said}; there is one in {' and '.join(known.elsewhere[name])} only"
    meant = closest(name.lstrip("-"), known.flags)
    return f"{said}; did you mean --{meant}?" if meant else said


def _about_value(known: ComponentFlags, name: str, argument: Arg) -> Iterator[str]:
    flag = known.flags[name]
    if flag.deprecated:
        yield f"--{name} of {known.component} {known.line} is deprecated: {flag.deprecated}"
    holds, wanted = _TYPES.get(flag.type, (None, ""))
    if holds is not None and not holds(argument.value):
        yield f"{known.component} needs {wanted} for --{name}, not {quoted(shown(argument.value))}, {NOT_STARTED}"


def _about_files(component: str, name: str, flag: ComponentFlag, argument: Arg, around: Surroundings) -> Iterator[str]:
    reads = _READ.search(name) is not None
    if flag.type not in _TEXTS or not (reads or _WRITTEN.search(name)):
        return
    for path in _paths(flag.type, argument.value):
        if component == KUBELET:
            if reads and path not in around.made() and not around.exists(path):
                yield f"--{name}: {path} does not exist on this machine"
        else:
            yield from _about_mounted(component, name, path, _mount_of(path, around.mounts(component)), reads=reads, around=around)


def _about_mounted(
    component: str, name: str, path: str, mount: HostPathMount | None, *, reads: bool, around: Surroundings
) -> Iterator[str]:
    if mount is None:
        if around.patched:
            return  # a patch may mount it
        remedy = "mount it with a patch: etcd has no extraVolumes" if component == ETCD else "add its directory to extraVolumes"
        yield f"--{name}: {path} is not in {component}'s static pod, which mounts no directory above it; {remedy}"
        return
    host = _normal(f"{mount.host_path}/{posixpath.relpath(path, _normal(mount.mount_path))}")
    whole = _normal(mount.mount_path) == path and mount.path_type in _MADE_BY_THE_KUBELET
    if reads and not whole and host not in around.made() and not around.exists(host):
        yield f"--{name}: {host} does not exist on this machine{'' if host == path else f', which {component} would see as {path}'}"
    if not reads and mount.read_only:
        yield f"--{name}: {component} cannot write to {path}, because {mount.mount_path} is mounted read-only (volume {mount.name})"


def _paths(kind: str, value: str) -> list[str]:
    """Return the absolute paths in a value. Others are relative to an unknown directory, or are not paths."""
    parts = [value]
    if kind == "namedCertKey":
        parts = value.partition(":")[0].split(",")
    elif kind == "strings":
        parts = value.split(",")
    return [_normal(part) for part in parts if _is_path(part)]


def _is_path(text: str) -> bool:
    """Return whether a text is an absolute path that can be checked."""
    return text.startswith("/") and "\0" not in text


def _normal(path: str) -> str:
    """Normalize an absolute path: no dots, and single slashes, also at its beginning."""
    return f"/{posixpath.normpath(path).lstrip('/')}"


def _mount_of(path: str, mounts: Iterable[HostPathMount]) -> HostPathMount | None:
    """Return the innermost mount that contains a path of a container."""
    usable = (mount for mount in mounts if _is_path(mount.mount_path) and _is_path(mount.host_path))
    above = [mount for mount in usable if f"{path}/".startswith(f"{_normal(mount.mount_path).rstrip('/')}/")]
    return max(above, key=lambda mount: len(_normal(mount.mount_path)), default=None)


def _etcd_line(cluster: ClusterConfiguration, version: Version) -> str:
    local = cluster.etcd.local
    tag = (local.image_tag if local else "") or release_for(version).etcd_tag
    found = re.match(r"v?(\d+\.\d+)\.", tag)
    return found[1] if found else ""
