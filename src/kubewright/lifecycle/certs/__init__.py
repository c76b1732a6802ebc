"""The functions of `certs` and `kubeconfig user`: expiry, renewal, requests for external CAs, kubeconfigs for users."""
