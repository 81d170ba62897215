"""Child processes for cpu_bound tasks."""
