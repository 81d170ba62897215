"""What can be seen of a worker from outside: metrics, logs, traces. Loaded where asked for."""
