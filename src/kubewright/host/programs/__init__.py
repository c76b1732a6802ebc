"""The programs of a machine, and what kubewright uses through them: systemd, WireGuard interfaces, the packet filter."""
