"""Whole machines for tests and benchmarks: systemd in containers, each with a network, cgroups and a disk of its own.

Needs root on Debian. `python -m testbed` is the command, `testbed.bed` what tests use. What is made once and kept (base tree, kit, images,
the container runtime's store) lies in the cache; what a bed makes is removed with it, also after a kill (`Bed.sweep`).
"""
