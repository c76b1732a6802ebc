"""The command table, its parser, and the reporters."""
