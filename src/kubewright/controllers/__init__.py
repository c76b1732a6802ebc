"""Approver, signer, cleaner, bootstrap signer, token cleaner. Room for later work."""
