"""The kubeadm.k8s.io configuration kinds: internal form, defaults, validation, codec."""
