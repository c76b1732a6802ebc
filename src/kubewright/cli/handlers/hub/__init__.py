"""The commands of `hub`."""
