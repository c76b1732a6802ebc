"""The kubeadm.k8s.io configuration kinds: internal form, defaults, validation, codec.

Use `loading.load_init` to convert documents and flags to a machine's configuration, and `loading.load_cluster` if no
machine is involved.
"""
