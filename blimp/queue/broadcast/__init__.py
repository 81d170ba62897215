"""Broadcasts: emergency stops and revocations, past every queue."""
