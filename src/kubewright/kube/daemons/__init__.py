"""What daemons share: informers and work queues, leader election, events, and the identity and authorization of those that serve."""
