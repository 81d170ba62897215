"""Programs that fly a ship. Run one: `python -m ground_station.examples.square`."""
