"""Words that the help of several commands shares."""

from __future__ import annotations

APP_MEANING = "where the TaskApp is, such as weather:app"
A_TASK = "f01f6ece-cd76-4e80-ac2e-8048a488811a"


def example(typed: str) -> str:
    """Return the line of a help that shows a command, with `typed` as it is called."""
    return f"example: python -m blimp.queue {typed} -A weather:app"
