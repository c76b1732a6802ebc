"""A local cluster as its commands see it."""
