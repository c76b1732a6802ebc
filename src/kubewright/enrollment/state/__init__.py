"""What a hub keeps, in SQLite or in Secrets."""
