"""What the ship can be asked to do."""
