"""`agent install` and `agent leave`: the agent as a service of its machine, as operations of the engine."""
