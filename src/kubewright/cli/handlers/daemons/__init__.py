"""What the handlers of daemons share: running until a signal comes, serving health and metrics, and leader election."""
