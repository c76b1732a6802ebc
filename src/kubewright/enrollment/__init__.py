"""NodeJoinRequest and what follows it. Room for later work."""
