"""The decisions before an upgrade: which versions are possible, whether the cluster is fit for one, and what it would change."""
