"""The parts of every machine in addition to Debian: programs, the container runtime and its network, units.

One directory, overlaid on the base tree.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kubewright import binaries
from kubewright.base import versions
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.level import KUBERNETES
from kubewright.binaries import BinarySources
from kubewright.machines.network import is_ipv6
from kubewright.machines.places import cache, making

_BIN, _CNI = "usr/local/bin", "opt/cni/bin"
PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("containerd", "containerd-shim-runc-v2", "ctr", "runc"), _BIN),
    **dict.fromkeys(("bridge", "loopback", "host-local", "portmap"), _CNI),
    **dict.fromkeys(("kubelet", "kubectl", "kubeadm"), "usr/bin"),
    "wireguard-go": _BIN,  # `wg` comes from Debian; the kernel may lack WireGuard
}
"""Programs of a machine, and the directory into which each is put."""
OPTIONAL: Final = ("wireguard-go",)
"""Programs that a machine has if they are there: they are released as source only, and a host may lack Go."""

_CONTAINERD = """\
version = 3

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'registry.k8s.io/pause:{pause}'

[plugins.'io.containerd.cri.v1.images'.registry]
  # containerd v2.2.1 takes its own default of two directories for one path
  config_path = '/etc/containerd/certs.d'

[plugins.'io.containerd.cri.v1.runtime']
  # without CAP_SYS_RESOURCE nobody may lower an OOM score
  restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '/usr/local/bin/runc'
  SystemdCgroup = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['/opt/cni/bin']
  conf_dir = '/etc/cni/net.d'
"""
# The kubelet's unit and drop-in as in the Debian packages of Kubernetes (kubernetes/release:
# cmd/krel/templates/latest).
_UNITS: Final[Mapping[str, str]] = {
    "containerd.service": """\
[Unit]
Description=containerd container runtime
After=network.target cgroups-writable.service

[Service]
Type=notify
ExecStart=/usr/local/bin/containerd
Delegate=yes
KillMode=process
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
""",
    # systemd-nspawn mounts them read-only
    "cgroups-writable.service": """\
[Unit]
Description=Make the cgroup mounts writable
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/cgroups-writable

[Install]
WantedBy=sysinit.target
""",
    "kubelet.service": """\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
""",
}
_DROP_IN = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
_AFTER_RUNTIME = """\
[Unit]
After=containerd.service
"""
"""The kubelet exits if the container runtime does not serve yet, and its unit waits ten seconds before it starts it again."""
_WRITABLE = """\
#!/bin/sh
set -eu
while read -r _ mount kind _; do
  case "$kind" in cgroup | cgroup2) mount -o remount,bind,rw "$mount" ;; esac
done < /proc/mounts
"""
_MASKED = (
    *("console-getty.service", "getty.target", "systemd-logind.service", "systemd-networkd.service", "systemd-resolved.service"),
    *(
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "e2scrub_all.timer",
        "fstrim.timer",
        "systemd-tmpfiles-clean.timer",
    ),
)
ENABLED = ("containerd.service", "cgroups-writable.service", "kubelet.service")


def programs(
    names: Sequence[str], *, version: str = KUBERNETES, sources: BinarySources | None = None, reporter: Reporter | None = None
) -> dict[str, Path]:
    """Return the paths of programs on the host, fetching missing ones. Raises BinariesError."""
    sources = sources or binaries.sources_from(os.environ)
    found = binaries.ensure(names, version=version, sources=sources, reporter=reporter or SilentReporter())
    return {name: Path(binary.path) for name, binary in found.items()}


def ensure_kit(*, version: str, sources: BinarySources | None, reporter: Reporter) -> Path:
    """Return the directory for a Kubernetes version, creating it if necessary."""
    wanted = programs([name for name in PLACES if name not in OPTIONAL], version=version, sources=sources, reporter=reporter)
    there = binaries.locate(OPTIONAL, version=version, sources=sources or binaries.sources_from(os.environ)).found
    wanted |= {name: Path(binary.path) for name, binary in there.items()}
    runtime = _CONTAINERD.format(pause=versions.release_for(versions.Version.parse(version)).pause_tag)
    place = cache() / f"kit-{_key(wanted, runtime)}"
    if not place.exists():
        with making(place) as partial:
            for name, path in wanted.items():
                _install(path.resolve(), partial / PLACES[name] / name)
            _configure(partial, runtime)
    return place


def cni(*, pods: Sequence[str]) -> str:
    """Return the network configuration of a machine whose pods have an address in each of these ranges."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": share}] for share in pods],
        "routes": [{"dst": "::/0" if is_ipv6(share) else "0.0.0.0/0"} for share in pods],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}, indent=1)


def _configure(tree: Path, runtime: str) -> None:
    units = tree / "etc" / "systemd" / "system"
    for name, text in _UNITS.items():
        _write(units / name, text)
    _write(units / "kubelet.service.d" / "10-kubeadm.conf", _DROP_IN)
    _write(units / "kubelet.service.d" / "20-containerd.conf", _AFTER_RUNTIME)
    for name in _MASKED:
        (units / name).symlink_to("/dev/null")
    for name in ENABLED:
        target = units / ("sysinit.target.wants" if name.startswith("cgroups") else "multi-user.target.wants") / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(f"/etc/systemd/system/{name}")
    _write(tree / "usr/local/sbin/cgroups-writable", _WRITABLE, mode=0o755)
    _write(tree / "etc/containerd/config.toml", runtime)


def _key(wanted: Mapping[str, Path], runtime: str) -> str:
    parts = [runtime, _DROP_IN, _AFTER_RUNTIME, _WRITABLE, *_UNITS.values(), *_MASKED, *PLACES.values()]
    parts += [f"{name} {path} {path.stat().st_size} {path.stat().st_mtime_ns}" for name, path in sorted(wanted.items())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _install(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
