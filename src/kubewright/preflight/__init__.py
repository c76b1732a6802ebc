"""Checks of a machine before it is changed: kubeadm's, with kubeadm's names (kubeadm v1.36: preflight), each with what to do about it.

`lists` says which checks a command runs, `checks` has their shape and runs them at the same time, the other modules hold them by topic. Reading only:
nothing here changes the machine. Must not import workflows.
"""
