"""The kubelet's unit and drop-in for systemd, for machines where no package brought them; in meaning what Kubernetes' own packages have.

Pure. The files begin with a line by which `reset` knows that they are ours.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.layout import Layout
from kubewright.base.errors import HostError
from kubewright.base.patterns import Pattern

UNIT: Final = PurePosixPath("/etc/systemd/system/kubelet.service")
DROP_IN: Final = PurePosixPath("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf")
FILES: Final = (UNIT, DROP_IN)
HEADER: Final = "# Installed by kubewright, because no package had brought a unit for the kubelet. `kubewright reset` removes it."

_SPECIAL: Final = Pattern(r"[\s\"'\\]")
_UNSPEAKABLE: Final = Pattern(r"[\x00-\x1f\x7f\"'\\\ud800-\udfff]")

_UNIT: Final = """\
{header}
[Unit]
Description=kubelet: the node agent of Kubernetes
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={program}
Restart=always
RestartSec=10
StartLimitInterval=0

[Install]
WantedBy=multi-user.target
"""
# kubeadm-flags.env comes from kubeadm or kubewright, /etc/default/kubelet from people: the last word is theirs.
_DROP_IN: Final = """\
{header}
[Service]
Environment={kubeconfigs}
Environment={config}
EnvironmentFile=-{flags}
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart={program} $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


def files(program: PurePosixPath, layout: Layout) -> Mapping[PurePosixPath, str]:
    """Return the unit and its drop-in, by path, for the kubelet at `program`. Raises HostError for a path that no unit can name."""
    command = _program(program)
    drop_in = _DROP_IN.format(
        header=HEADER,
        program=command,
        kubeconfigs=_variable(
            "KUBELET_KUBECONFIG_ARGS",
            f"--bootstrap-kubeconfig={layout.kubeconfig('bootstrap-kubelet')}",
            f"--kubeconfig={layout.kubeconfig('kubelet')}",
        ),
        config=_variable("KUBELET_CONFIG_ARGS", f"--config={layout.kubelet_config}"),
        flags=_file(layout.kubelet_flags),
    )
    return {UNIT: _UNIT.format(header=HEADER, program=command), DROP_IN: drop_in}


def _program(path: PurePosixPath) -> str:
    """Return the path of a program as the first word of ExecStart=: `%` begins a specifier, blanks end a word, `$` means nothing there.

    systemd takes no program whose path has quotes, backslashes or control characters in it (string_is_safe in src/basic/string-util.c).
    """
    text = str(path)
    if _UNSPEAKABLE.search(text):
        raise HostError(
            f"no unit can start {text!r}",
            detail="systemd takes no path with quotes, backslashes, control characters or bytes that are no UTF-8",
            remedy="install the kubelet in another directory",
        )
    escaped = _plain(text)
    return f'"{escaped}"' if any(character.isspace() for character in text) else escaped


def _variable(name: str, *arguments: str) -> str:
    """Return an assignment for Environment=, whose value systemd takes to pieces again: each argument is quoted, and then all of them."""
    value = " ".join(_quoted(argument) if _SPECIAL.search(argument) else argument for argument in arguments)
    return _plain(_quoted(f"{name}={value}"))


def _file(path: PurePosixPath) -> str:
    """Return a path for EnvironmentFile=, which is the rest of its line and a pattern."""
    return _plain(glob.escape(str(path)))


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _plain(text: str) -> str:
    """Return a text in which `%` means itself (systemd.unit(5), specifiers)."""
    return text.replace("%", "%%")


def is_ours(content: bytes | None) -> bool:
    """Tell whether a file was made by us."""
    return content is not None and content.startswith(HEADER.encode())
