"""`node join`, `node leave` and `node rotate-vpn-key`: membership in a cluster through a hub, as operations of the engine."""
