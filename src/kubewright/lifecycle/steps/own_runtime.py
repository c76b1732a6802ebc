"""The container runtime that the kubelet of this machine uses, according to its files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.machine import Detected
from kubewright.base import yaml
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.patterns import Pattern
from kubewright.base.records import replace
from kubewright.host.seam import Host

_FIELD: Final = "containerRuntimeEndpoint"
_FLAG: Final = Pattern(r"--container-runtime-endpoint=(?P<socket>[^\s\"]+)")
_SCHEME: Final = "unix://"


def configured(host: Host) -> str:
    """Return the socket in the kubelet's files, as a URL; '' if none of them has one."""
    layout = host.layout
    flag = _FLAG.search((host.read(layout.kubelet_flags) or b"").decode(errors="replace"))
    told = (_field(host, layout.kubelet_instance_config), flag["socket"] if flag else "", _field(host, layout.kubelet_config))
    return next(filter(None, told), "")


def preferred(host: Host) -> Detected:
    """Return the facts of a machine, with the kubelet's runtime as the only one if its socket exists."""
    with suppress(HostError):  # files that cannot be read say nothing
        socket = configured(host)
        if socket.startswith(f"{_SCHEME}/") and host.state(PurePosixPath(socket.removeprefix(_SCHEME))) is not None:
            return replace(host.facts.detected, cri_sockets=(socket,))
    return host.facts.detected


def _field(host: Host, path: PurePosixPath) -> str:
    """Return the text of the field of a YAML file, '' if there is none."""
    with suppress(KubewrightError):
        content = host.read(path)
        found = yaml.load(content, source=str(path)) if content else None
        value = found.get(_FIELD) if isinstance(found, dict) else None
        return value if isinstance(value, str) else ""
    return ""
