"""The order in which a control plane is started on a real machine: what is written when (DESIGN principle 7)."""
