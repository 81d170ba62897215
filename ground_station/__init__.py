"""The ground station: it sends tasks, reads telemetry and never touches the ship."""
