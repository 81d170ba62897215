"""The simulated world: physics, chips at register level, and the seam below the drivers."""
