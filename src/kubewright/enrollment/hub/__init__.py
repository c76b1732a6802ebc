"""The hub: serving its clusters."""
