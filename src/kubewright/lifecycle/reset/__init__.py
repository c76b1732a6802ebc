"""`reset`: the tree of its phases, and the configuration that comes of files and flags. What the phases do comes with a later release."""
