"""Many agents in one process.

Each is a whole node, with its own key, certificate and connections; only the event loop is shared.
"""
