"""Signatures, chains, groups and chords: what follows a task, and tasks that run together."""
