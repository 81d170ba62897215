"""A Django project: orders, each of which a worker confirms, and probes of connections."""
