"""Signatures, chains, groups and chords: what follows a task's end, and what begins together."""
