"""Whole machines for tests and benchmarks: systemd in containers, each with its own network, cgroups and disk.

Needs root on Debian. `python -m testbed` is the command, tests use `testbed.bed`. What is made once and kept (base
tree, kit, images, the container runtime's store) is in the cache; what a bed creates is removed with it, even after
it was killed (`Bed.sweep`).
"""
