"""Checks of a machine before it is changed: kubeadm's, with kubeadm's names (kubeadm v1.36: preflight), each with a remedy.

`lists` defines which checks a command runs, `checks` has their subject (`base.checks` runs them), the other modules
contain them by topic. They only read: nothing here changes the machine. Must not import workflows.
"""
