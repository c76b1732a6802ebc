"""Checks of single kubelet settings that have a grammar of their own: sets of cores, taints, image patterns, reserved memory, collectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.apis import formats, urls
from kubewright.base.patterns import Pattern
from kubewright.base.quoting import quoted

_IDS: Final = 65536
_MAX_UINT32: Final = (1 << 32) - 1
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME: Final = Pattern(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)", re.ASCII)
_PREFIX: Final = Pattern(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_CORES: Final = Pattern(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
_COLLECTORS: Final = ("dns", "unix", "unix-abstract")


def ids_per_pod(value: int) -> str:
    """Require a number of user ids that one pod can have."""
    fits = _IDS <= value <= _MAX_UINT32 and value % _IDS == 0
    return "" if fits else f"{value} must be a multiple of {_IDS}, and at most {_MAX_UINT32}"


def cpu_set(value: str) -> str:
    """Require a list of cores such as `0-1,4`."""
    for part in value.split(","):
        found = _CORES.fullmatch(part)
        if found is None or (found[2] is not None and _size(found[2]) < _size(found[1])):
            return f"{quoted(value)} must be a list of cores such as 0-1,4"
    return ""


def _size(digits: str) -> tuple[int, str]:
    """Return what orders numbers of any length, which int() does not read."""
    return len(digits.lstrip("0")), digits.lstrip("0")


def collector(value: str) -> str:
    """Require the address of a collector as gRPC names it."""
    try:
        scheme = urls.scheme_of(value if "//" in value else f"dns://{value}")
    except ValueError as error:
        return f"{quoted(value)} is no address: {error}"
    return "" if scheme in _COLLECTORS else f"{quoted(value)} must be host:port, or a URL with the scheme {', '.join(_COLLECTORS)}"


def image_patterns(values: Sequence[str]) -> str:
    """Require names of images, of which the last part may be `*`."""
    for value in values:
        stem = value.removesuffix("*") if value.endswith("/*") else value
        fits = stem not in ("", "/") and "*" not in stem and value == value.strip()
        if not fits or (stem == value and not formats.is_image_repository(value)):
            return f"{quoted(value)} must be the name of an image, without tag and digest; only its end may be /*"
    return ""


def taints(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Require taints as a Node has them."""
    for index, taint in enumerate(kubelet["registerWithTaints"] or ()):
        path = f"registerWithTaints[{index}]"
        prefix, slash, name = taint["key"].rpartition("/")
        if not _is_name(name) or (slash and (_PREFIX.fullmatch(prefix) is None or len(prefix) > 253)):
            yield f"{path}.key", f"{quoted(taint['key'])} must be a label's key, such as example.com/name"
        if taint["value"] and not _is_name(taint["value"]):
            yield f"{path}.value", f"{quoted(taint['value'])} must be a label's value"
        if taint["effect"] and taint["effect"] not in _EFFECTS:
            yield f"{path}.effect", f"{quoted(taint['effect'])} must be one of {', '.join(_EFFECTS)}"
        if taint["timeAdded"]:
            yield f"{path}.timeAdded", "it must not be set"


def _is_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None


def reserved_memory(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Require kinds of memory, each once for a NUMA node and not zero."""
    seen: set[tuple[int, str]] = set()
    for index, one in enumerate(kubelet["reservedMemory"] or ()):
        for name, amount in (one["limits"] or {}).items():
            path = f"reservedMemory[{index}].limits[{name}]"
            if name != "memory" and not name.startswith("hugepages-"):
                yield path, "the kinds of memory are memory and hugepages-SIZE"
            if amount == "0":
                yield path, "it must not be zero"
            if (one["numaNode"], name) in seen:
                yield path, f"NUMA node {one['numaNode']} has it already"
            seen.add((one["numaNode"], name))
