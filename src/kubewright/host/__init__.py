"""The Host seam: files, processes, network, facts, services, container runtime of one machine."""
