"""Putting processes together: the composition root, the supervisor of `blimp up`, the demo."""
