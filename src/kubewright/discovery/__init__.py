"""Find and trust a cluster, and request a certificate from it."""
