"""Work that several operations do to a machine or its cluster."""
