"""The state of a hub, in SQLite or in Secrets."""
