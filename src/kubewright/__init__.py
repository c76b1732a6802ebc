"""kubewright brings up Kubernetes control planes and joins machines to them."""

__version__ = "0.1.0"
