"""A worker's lines to its queues: one for each kind of transport."""
