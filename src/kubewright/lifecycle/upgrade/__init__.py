"""The upgrade commands: trees of phases, configuration, the policy of versions, and what the phases do."""
