"""A node's certificates: where they are kept, who is asked for them, and when they are replaced."""
