"""The rows: every command and flag, and the types that they are made of."""
