"""Checks of a machine before it is changed: kubeadm's, with kubeadm's names (spec/kubeadm.md 4), each with what to do about it.

`lists` says which checks a command runs, `running` runs them at the same time, the other modules hold the checks by topic. Reading only:
nothing here changes the machine. Must not import workflows.
"""
