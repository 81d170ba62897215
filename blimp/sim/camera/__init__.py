"""What the simulated camera sees. Needs numpy: nothing of a ship without a camera imports it."""
