"""Orders: a view takes one, a task confirms it."""
