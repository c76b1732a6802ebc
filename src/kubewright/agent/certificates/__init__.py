"""A node's certificates: where they are kept, who issues them, and when they are rotated."""
