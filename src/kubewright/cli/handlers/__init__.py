"""The handlers of the commands."""
