"""Bootstrap tokens, their Secrets, the signed cluster-info."""
