"""Versioned kinds and the values that describe a machine. Pure: nothing here reads the machine or the network."""
