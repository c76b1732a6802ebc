"""The VPN between a hub and its nodes."""
