"""init: the tree of phases that makes a machine the first control plane, and what each phase does with the parts below."""
