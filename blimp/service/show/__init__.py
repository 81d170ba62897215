"""Flies in front of people: the demo and its page, the story, and the faults on purpose."""
