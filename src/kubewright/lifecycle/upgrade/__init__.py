"""The upgrade commands: trees of phases, configuration, and the policy of versions. What the phases do comes with a later release."""
