"""What the `certs` and `kubeconfig user` commands do: expiry, renewal, requests for authorities kept elsewhere, kubeconfigs for people."""
