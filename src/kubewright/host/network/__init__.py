"""The network of a machine: its addresses and its listening sockets."""
