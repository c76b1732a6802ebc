"""The rows: every command and flag, and their types."""
