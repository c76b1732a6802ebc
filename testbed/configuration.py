"""The kubeadm.yaml of machines: the settings that a kubelet and kube-proxy need in a container of systemd-nspawn."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SHARED_DISK: Final = """\
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
"""
"""Fields of a KubeletConfiguration for nodes that share the host's disk: how full it is says nothing about their pods."""
KUBEADM: Final = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: {{address}}
nodeRegistration:
  ignorePreflightErrors: [SystemVerification]  # these machines may have cgroup v1
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: cluster.test:6443
networking:
  podSubnet: 10.244.0.0/16
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
{SHARED_DISK}---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack:
  maxPerCore: 0
"""
"""A first control plane; `address` is the machine's own address."""


def has_cgroup_v1() -> bool:
    """Whether machines of this host have cgroup v1, which kubeadm's check SystemVerification refuses."""
    return not Path("/sys/fs/cgroup/cgroup.controllers").exists()
