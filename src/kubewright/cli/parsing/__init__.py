"""Converts the command line and configuration files to values."""
