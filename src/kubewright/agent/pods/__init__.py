"""The pods of a node that runs no containers: their simulated life, their addresses, and the mirrors of static pods."""
