"""Between processes: mailbox, telemetry, run registry, and where their files are."""
