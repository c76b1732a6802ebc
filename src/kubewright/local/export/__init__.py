"""`local export`: the state of a cluster as files, for a bug report."""
