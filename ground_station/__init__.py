"""The ground station: it sends tasks, reads telemetry and never touches the ship."""

DISTRIBUTION = "blimp-autopilot"  # whose package this is: see blimp/ground.py
