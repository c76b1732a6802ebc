"""Checks of a machine before it is changed."""
