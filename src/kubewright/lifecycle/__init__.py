"""Loading configuration, init and what follows: phase trees that bind the parts below."""
