"""The status of a Node: facts about the machine, and the setters that compute a status from them. Pure."""
