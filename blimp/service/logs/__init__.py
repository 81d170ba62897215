"""Shows recorded flights and flies them again."""
