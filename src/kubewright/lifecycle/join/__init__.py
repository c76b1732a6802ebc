"""`join`: the tree of its phases, what they do, and the configuration that comes of files, flags and the cluster."""
