"""Sets up a ship's computer: its configuration, keys, users of the broker, and units."""
