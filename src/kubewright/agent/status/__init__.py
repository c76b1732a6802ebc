"""What a node's agent says of it in its Node object: facts, setters, and when a report is due."""
