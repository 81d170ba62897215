"""The MAVLink face of a ship, for QGroundControl, MAVSDK and others: docs/mavlink.md."""
