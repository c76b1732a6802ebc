"""Collect the flags of real components, and write the table of them: `python -m tests.compat.flag_collecting DIRECTORY ...`.

The directories contain kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and etcd, each in any number
of minor releases: for example the caches of `kubewright binaries` for three releases of Kubernetes. `--help` shows
names, types and deprecations. Flags that it hides are tried one by one: `NAME=0 --help` answers with an error for an
unknown flag, and with the component's own words for a deprecated one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).parents[2] / "src" / "kubewright" / "manifests" / "component_flags.txt"
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
COMPONENTS = (*KUBERNETES, "etcd")

# Hidden flags, found by reading the components' sources for MarkDeprecated and their lists of ignored flags.
_HIDDEN = {
    "kube-apiserver": """
        apiserver-count audit-webhook-batch-initial-backoff default-watch-cache-size enable-logs-handler kubelet-port kubelet-read-only-port
    """,
    "kube-controller-manager": "allow-untagged-cloud node-sync-period",
    "kube-scheduler": "",
    "kubelet": """
        application-metrics-count-limit boot-id-file container-hints containerd containerd-namespace enable-load-reader event-storage-age-limit
        event-storage-event-limit experimental-allocatable-ignore-eviction experimental-mounter-path global-housekeeping-interval
        housekeeping-interval keep-terminated-pod-volumes log-cadvisor-usage machine-id-file maximum-dead-containers
        maximum-dead-containers-per-container minimum-container-ttl-duration pod-infra-container-image storage-driver-buffer-duration
        storage-driver-db storage-driver-host storage-driver-password storage-driver-secure storage-driver-table storage-driver-user
    """,
    "etcd": """
        cluster-active-size cluster-remove-delay cluster-sync-interval config config-file force max-result-buffer max-retry-attempts
        peer-election-timeout peer-heartbeat-interval retry-interval snapshot v version vv
    """,
}

_KUBERNETES_FLAG = re.compile(r" {2,6}(?:-\w, )?--(?P<name>[\w.-]+)(?: (?P<type>\S+?))?(?:\[=\S*\])?(?: {2,}(?P<usage>\S.*))?")
_ETCD_FLAG = re.compile(r"  --(?P<name>[a-z0-9-]+)(?: (?P<default>.+))?")
_MARKED = re.compile(r"\(DEPRECATED: (?P<words>.*?)\)(?: \(default .*)?$|^DEPRECATED: (?P<usage>.*)$")
_ETCD_MARKED = re.compile(r"(?:^|\s)(?P<words>Deprecated (?:in|and) .*)$")
_TRIED = re.compile(r"has been deprecated, (?P<words>.*)")


@dataclass(frozen=True)
class Found:
    """What a component says about one flag; `type` is '' if it does not say."""

    type: str
    deprecated: str = ""


def collect(program: str | Path, component: str) -> dict[str, Found]:
    """Return all flags of a program, by name."""
    text = _run(program, "--help")
    if component == "etcd":  # its help is written by hand: that of v3.7.0 lists two flags which the program does not have
        found = {name: flag for name, flag in _of_etcd(text) if _tried(program, name) is not None}
    else:
        found = dict(_of_kubernetes(text))
    for name in _HIDDEN[component].split():
        if name not in found and (answer := _tried(program, name)) is not None:
            found[name] = answer
    return found


def _run(program: str | Path, *argv: str) -> str:
    done = subprocess.run([program, *argv], capture_output=True, text=True, timeout=600, check=False, cwd="/")
    return f"{done.stdout}\n{done.stderr}"


def _of_kubernetes(text: str) -> Iterator[tuple[str, Found]]:
    for line in text.splitlines():
        if flag := _KUBERNETES_FLAG.fullmatch(line):
            marked = _MARKED.search(flag["usage"] or "")
            words = (marked["words"] or marked["usage"] or "") if marked else ""
            yield flag["name"], Found(flag["type"] or "bool", _plain(words))


def _of_etcd(text: str) -> Iterator[tuple[str, Found]]:
    """Read etcd's own format: a line with name and default, then the meaning."""
    lines = text.splitlines()
    for line, meaning in zip(lines, [*lines[1:], ""], strict=True):
        if flag := _ETCD_FLAG.fullmatch(line):
            marked = _ETCD_MARKED.search(meaning)
            yield flag["name"], Found("bool" if flag["default"] in {"'true'", "'false'"} else "", _plain(marked["words"] if marked else ""))


def _tried(program: str | Path, name: str) -> Found | None:
    """Return how a program treats a flag that its help does not list; None if it does not know it."""
    text = _run(program, f"--{name}=0", "--help")
    if "unknown flag" in text or "flag provided but not defined" in text:
        return None
    marked = _TRIED.search(text)
    return Found("", _plain(marked["words"]) if marked else "")


def _plain(words: str) -> str:
    return re.sub(r" \(default [^()]*\)$", "", " ".join(words.split()))


def rows(found: Mapping[str, Mapping[str, Found]]) -> list[tuple[str, str, str, str]]:
    """Return name, type, deprecation and lines for the flags of one component by line; `*` means all lines."""
    everywhere = list(found)
    lines: dict[tuple[str, Found], list[str]] = {}
    for line, flags in found.items():
        for name, flag in flags.items():
            lines.setdefault((name, flag), []).append(line)
    return sorted((name, flag.type, flag.deprecated, "*" if of == everywhere else ",".join(of)) for (name, flag), of in lines.items())


def render(components: Mapping[str, Mapping[str, Mapping[str, Found]]]) -> str:
    """Write the table: a `[component lines]` head, the deprecations as `@n words`, then `name type lines @n`, separated by tabs."""
    out = []
    for component, found in components.items():
        table = rows(found)
        words = sorted({row[2] for row in table if row[2]})
        out.append(f"[{component} {' '.join(found)}]")
        out += [f"@{index}\t{text}" for index, text in enumerate(words)]
        out += ["\t".join((name, kind, of, f"@{words.index(text)}" if text else "")).rstrip("\t") for name, kind, text, of in table]
    return "".join(f"{line}\n" for line in out)


def line(program: Path) -> str:
    """Return the minor release of a program."""
    found = re.search(r"^(?:Kubernetes v|etcd Version: )(\d+\.\d+)", _run(program, "--version"), re.MULTILINE)
    if found is None:
        sys.exit(f"{program} does not report its version")
    return found[1]


def main(directories: Iterable[str]) -> None:
    """Write the table."""
    programs = [Path(directory) / name for directory in directories for name in COMPONENTS]
    there = {(path.name, line(path)): path for path in programs if path.exists()}
    found = {name: {of: collect(there[name, of], name) for one, of in sorted(there) if one == name} for name in COMPONENTS}
    TABLE.write_text(render(found))


if __name__ == "__main__":
    main(sys.argv[1:])
