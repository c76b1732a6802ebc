"""Replacements for the kubelet and the container runtime of a local machine: they run static pods as supervised processes."""
