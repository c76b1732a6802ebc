"""Joining machines to clusters through a hub: oneinfra's NodeJoinRequest, both the hub's side and the node's.

The package `hub` serves many tenant clusters from one process; `node` is one more operation of the engine in
`lifecycle`. The formats that both sides share, and the hub's decisions (`protocol`), are pure.
"""
