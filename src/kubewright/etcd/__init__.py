"""etcd membership, health and snapshots."""
