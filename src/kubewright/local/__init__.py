"""The local cluster: machines as directories and loopback addresses, the static-pod supervisor, the daemon, up and down."""
