"""What a camera sees: its frames, the position they give, photographs. Needs the extra `camera`."""
