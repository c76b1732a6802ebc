"""The operations on machines (init, join and others), as trees of phases that combine the lower layers."""
