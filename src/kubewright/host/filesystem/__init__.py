"""Files, mounts and trees of files of a machine, and paths that no other user can redirect."""
