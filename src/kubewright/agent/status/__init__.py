"""What a node's agent says of it in its Node object: facts of the machine, and the setters that make a status of them. Pure."""
