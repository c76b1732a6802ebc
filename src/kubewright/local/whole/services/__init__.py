"""The daemon of a cluster of machines: published ports, addresses of LoadBalancer Services, and volumes."""
