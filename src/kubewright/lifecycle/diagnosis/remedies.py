"""Remedies for a failing kubelet or component, found by its last messages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

Rows = Sequence[tuple[str, str]]
"""A lower-case text in a log line, and the remedy. Specific texts are before general ones."""

_AGAIN: Final = "then run the same command again"
_CORRECT: Final = "correct the configuration and run the command again; if it is refused, run `kubewright reset` first"
_COMMON: Final = (
    ("no space left on device", f"free some space (`df -h` and `df -i` show its use), {_AGAIN}"),
    ("read-only file system", f"remount the file system of that path for writing, {_AGAIN}"),
)
KUBELET: Final = (
    ("failed to parse kubelet flag", f"nodeRegistration.kubeletExtraArgs has an argument that the kubelet does not accept: {_CORRECT}"),
    (
        "not run on a host using cgroup v1",
        "boot this machine with cgroup v2, or set failCgroupV1: false in the KubeletConfiguration: this kubelet refuses cgroup v1",
    ),
    ("failed to validate kubelet configuration", f"the KubeletConfiguration is not valid for this kubelet: {_CORRECT}"),
    ("failed to load kubelet config file", f"the KubeletConfiguration is not valid for this kubelet: {_CORRECT}"),
    ("running with swap on", f"switch swap off (`swapoff -a`, and in /etc/fstab), or set failSwapOn: false, {_AGAIN}"),
    ("exec format error", f"install a kubelet that was built for this machine (`uname -m`), {_AGAIN}"),
    ("failed at step exec", f"install the kubelet at the path in its unit (`systemctl cat kubelet`), {_AGAIN}"),
    (
        "validate service connection",
        f"start the container runtime (`systemctl status containerd` or `crio` shows why it stopped), {_AGAIN}",
    ),
    ("address already in use", f"stop the process that uses the kubelet's port (`ss -ltnp` shows it), {_AGAIN}"),
    *_COMMON,
)
"""Messages of the kubelet and systemd.

Source: kubelet v1.36.3: cmd/kubelet/app/server.go, pkg/kubelet/cm; systemd v252: src/core/execute.c.
"""
KUBELET_OTHERWISE: Final = f"fix what the kubelet reports (`journalctl -u kubelet` has all of it), {_AGAIN}"
COMPONENT: Final = (
    *_COMMON,
    ("address already in use", f"stop the process that uses the port (`ss -ltnp` shows it), {_AGAIN}"),
    ("unknown flag", f"extraArgs has an argument that it does not know: {_CORRECT}"),
    ("flag provided but not defined", f"extraArgs has an argument that it does not know: {_CORRECT}"),
    ("invalid argument", f"extraArgs has a value that it does not accept: {_CORRECT}"),
    ("invalid value", f"extraArgs has a value that it does not accept: {_CORRECT}"),
    ("permission denied", f"correct the owner or the mode of the file that it names, {_AGAIN}"),
)
"""Messages of etcd v3.6 and the components of Kubernetes."""
COMPONENT_OTHERWISE: Final = f"fix what the component reports, {_AGAIN}"


def of_kubelet(lines: Sequence[str]) -> str:
    """Return the remedy for a failing kubelet, from the lines that contain a reason."""
    return match(KUBELET, lines) or KUBELET_OTHERWISE


def of_component(lines: Sequence[str]) -> str:
    """Return the remedy for a component that fails repeatedly, from its last errors."""
    return match(COMPONENT, lines) or COMPONENT_OTHERWISE


def match(rows: Rows, lines: Sequence[str]) -> str:
    """Return the remedy of the latest line that has one, by the first row that matches it; '' if none does."""
    return next((remedy for line in reversed(lines) for text, remedy in rows if text in line.lower()), "")
