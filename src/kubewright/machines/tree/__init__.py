"""Machine trees: the parts of whole machines in one file, for hosts that cannot make them (docs/decisions/0035-machine-trees.md)."""
