"""Values that kubeadm takes without a word although what they name is gone, or never was. They draw a warning that says what to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.apis.kubeadm.features import AVAILABLE
from kubewright.apis.kubeadm.types import HostPathMount
from kubewright.apis.walking import Problems
from kubewright.base.nearest import did_you_mean
from kubewright.base.quoting import quoted

_MASTER: Final = "node-role.kubernetes.io/master"
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_DOCKERSHIM: Final = "dockershim.sock"
_DOCKER: Final = ("/docker.sock", "/docker/docker.sock")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PATH_TYPES: Final = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice")
_FROZEN: Final = ("k8s.gcr.io", "gcr.io/google_containers", "gcr.io/google-containers")


def taints(given: Sequence[Mapping[str, Any]]) -> Problems:
    """Question the taint that control planes had up to v1.24, and effects that no scheduler knows."""
    for taint in given:
        effect = taint.get("effect", "")
        if effect not in _EFFECTS:
            yield f"the effect {quoted(effect)} is none of {', '.join(_EFFECTS)}{did_you_mean(effect, _EFFECTS)}", effect
        if taint.get("key") == _MASTER:
            yield f"the taint {_MASTER} is gone since v1.25; write {_CONTROL_PLANE}", _MASTER


def gates(given: Mapping[str, bool]) -> Problems:
    """Question gates that are generally available and switched off: they do what they say until they are gone."""
    for gate, value in given.items():
        if value != AVAILABLE.get(gate, value):
            yield f"the feature gate {gate} is generally available and will be gone with the next release; leave it out", gate


def socket(given: str) -> Problems:
    """Question sockets of Docker, which the kubelet cannot talk to since dockershim is gone."""
    if given.endswith((_DOCKERSHIM, *_DOCKER)):
        yield f"{given} is Docker's, which kubelets cannot use since v1.24; use containerd, CRI-O, or cri-dockerd's socket", given


def repository(given: str) -> Problems:
    """Question registries that get no new images."""
    for frozen in _FROZEN:
        if given == frozen or given.startswith(f"{frozen}/"):
            yield f"{frozen} gets no new images since v1.27; write registry.k8s.io", given


def path_types(given: Sequence[HostPathMount]) -> Problems:
    """Question types of host paths that the kubelet refuses: the static pod does not start."""
    for mount in given:
        if mount.path_type not in _PATH_TYPES:
            meant = did_you_mean(mount.path_type, _PATH_TYPES[1:])
            yield f"{quoted(mount.path_type)} of {mount.name} is none of {', '.join(_PATH_TYPES[1:])}{meant}", mount.path_type


def checks(given: Sequence[str]) -> Problems:
    """Question names of preflight checks that are gone."""
    if not given:
        return
    from kubewright.apis.kubeadm.removed import check_hint

    yield from ((hint, name) for name in given if (hint := check_hint(name)))
