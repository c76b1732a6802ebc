"""The messages between hub and nodes, and the hub's decisions. Pure."""
