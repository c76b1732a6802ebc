"""Membership and health of an etcd cluster, over etcd's JSON gateway. What a member needs on its machine is the business of `lifecycle`."""
