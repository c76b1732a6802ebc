"""`join`: its tree of phases, their functions, and the configuration from files, flags and the cluster."""
