"""Maintenance of a cluster's etcd: health, removal and replacement of members, snapshots, restores and backups."""
