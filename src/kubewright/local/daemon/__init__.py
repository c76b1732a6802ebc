"""The daemon of a local cluster."""
