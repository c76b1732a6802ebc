"""The configuration of an agent: the kubelet's flags and files, how each field is treated, and the resulting values. Pure."""
