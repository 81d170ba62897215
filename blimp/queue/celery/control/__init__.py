"""What reaches every worker at once, past the queues."""
