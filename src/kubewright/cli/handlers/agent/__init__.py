"""Handlers of `agent`, and the requests of its operations."""
