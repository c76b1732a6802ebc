"""Finding and trusting a cluster, asking for a certificate and waiting for it."""
