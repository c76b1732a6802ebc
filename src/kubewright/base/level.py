"""The compatibility level, alone in its file so that `kubewright version` need not load anything else."""

KUBERNETES = "v1.36.3"
"""The Kubernetes version whose kubeadm kubewright is, in all skew rules; also the default version of a new cluster."""
