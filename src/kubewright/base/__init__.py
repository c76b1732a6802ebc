"""What everything stands on: errors, time, randomness, waiting, reporting, changes, versions, quantities, field errors, the YAML dialect. Knows no Kubernetes object and does no I/O of its own."""
