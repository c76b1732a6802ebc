"""Membership and health of an etcd cluster, over etcd's JSON gateway.

The files of a member on its machine are left to `lifecycle`.
"""
