"""Handlers of `controllers` and `csr`."""
