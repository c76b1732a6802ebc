"""Observing the machine on which an agent runs: through the reading methods of a Host, in a separate thread."""
