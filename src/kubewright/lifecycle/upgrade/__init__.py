"""The upgrade commands: their operations and trees of phases, their configuration, and the steps of each phase."""
