"""The shared framework of daemons: informers, work queues, leader election, events, identity and authorization of servers."""
