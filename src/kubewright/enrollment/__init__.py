"""How machines come into clusters through a hub: oneinfra's NodeJoinRequest, the hub's side and the node's. Room for the sealed join, which comes later.

`hub_…` serves many tenant clusters from one process; `node/` is one more operation of the engine of `lifecycle`. What both write and read
(`fields`, `requests`, `answers`) and what the hub decides (`decisions`) is pure.
"""
