"""The pytest plugin: a real cluster as a fixture."""
