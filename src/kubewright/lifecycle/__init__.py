"""The operations on machines: configuration, init and the others, as phase trees that combine the lower layers."""
