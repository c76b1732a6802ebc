"""What hub and nodes say to each other, and what the hub decides. Pure."""
