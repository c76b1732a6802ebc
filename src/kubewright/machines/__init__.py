"""Whole machines on this host: systemd in containers, each with its own network, cgroups and disk.

Knows container images and units, and nothing else about Kubernetes. Needs root on Debian. Parts that are built once
(Debian tree, programs, images, the container runtime's store) are in the cache. Everything that belongs to a group of
machines on the host is named after the group, so that it can be found and removed even if its creator was killed
(`group.sweep`).
"""
