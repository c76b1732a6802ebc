"""Steps that several operations perform on a machine or its cluster."""
