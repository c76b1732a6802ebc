"""init: the tree of phases that creates the first control plane, and the functions of the phases."""
