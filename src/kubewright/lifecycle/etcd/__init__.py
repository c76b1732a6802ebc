"""Looking after the etcd of a cluster: how its members are, which of them may go, and snapshots of its data."""
