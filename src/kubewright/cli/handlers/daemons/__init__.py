"""Common parts of the handlers of daemons: running until a signal arrives, serving health and metrics, leader election."""
