"""What an agent on a machine is told: the kubelet's flags and files, what becomes of each of them, and the values that come of it. Pure."""
