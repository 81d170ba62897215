"""Finds what a ship is from its flights, and how well it flies."""
