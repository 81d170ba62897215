"""Sending: from what a caller says to what the broker holds."""
