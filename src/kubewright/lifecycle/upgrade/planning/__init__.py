"""Decisions before an upgrade: which versions are possible, whether the cluster is fit, and what would change."""
