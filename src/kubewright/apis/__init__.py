"""Versioned kinds and the values that describe a machine. Pure: nothing here looks at the machine or the network."""
