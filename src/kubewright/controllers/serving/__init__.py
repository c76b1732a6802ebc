"""Approving the serving certificates of kubelets: only for names and addresses that are proven to be the node's own."""
