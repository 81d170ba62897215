"""Measurements behind the figures this project quotes. Never part of the tests."""
