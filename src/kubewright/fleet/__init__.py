"""Many agents in one process, and the life of the pods that they play."""
