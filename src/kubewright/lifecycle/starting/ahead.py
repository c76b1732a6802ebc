"""The order in which the phases of `init` run on a real machine; they are told of in kubeadm's."""

from __future__ import annotations

from typing import Final

AHEAD: Final = (
    *("certs", "certs/ca", "kubeconfig", "kubeconfig/kubelet", "control-plane", "kubelet-start"),
    *("certs/etcd-ca", "certs/etcd-server", "certs/etcd-peer", "certs/etcd-healthcheck-client", "etcd/local"),
    *("certs/apiserver-etcd-client", "certs/apiserver", "certs/apiserver-kubelet-client", "certs/front-proxy-ca"),
    *("certs/front-proxy-client", "certs/sa", "control-plane/apiserver", "kubeconfig/super-admin"),
)
"""The phases in the order in which they are needed: a kubelet takes a second to start its first pod, and needs nothing but its own files;
then etcd's keys, then the API server's, while the kubelet and etcd start."""
