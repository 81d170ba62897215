"""Which broker: its URL, its transport, what that guarantees, its clock, its outages."""
