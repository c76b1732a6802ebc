"""Whole machines on this host: systemd in containers, each with its own network, cgroups and disk.

Knows container images and units, and nothing else about Kubernetes. Needs root on Debian. What is made once and kept
(Debian tree, programs, images, the container runtime's store) is in the cache; what a group of machines has on the host
is named after it, so that it can be found and removed even after its creator was killed (`group.sweep`).
"""
