"""`node join` and what follows it: this machine in a cluster through a hub, as an operation of the engine."""
