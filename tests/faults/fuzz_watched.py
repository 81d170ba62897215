"""The targets, and what a coverage-guided run of each watches. Imports nothing that it watches."""

NAMES = (
    "message", "broadcast", "mailbox", "serial", "configuration", "mission", "mavlink",
    "worker-message", "worker-broadcast",
)  # fmt: skip

# What a coverage-guided run watches: the readers, not the physics behind them.
WATCHED: dict[str, tuple[str, ...]] = {
    "message": (
        "blimp.queue.brokers.streams.envelope", "blimp.queue.protocol", "blimp.queue.canvas",
        "blimp.queue.worker.decode", "blimp.queue.worker.middleware", "blimp.queue.worker.runner",
        "blimp.queue.worker.completions", "blimp.queue.task", "blimp.tasks.command",
        "blimp.tasks.authority", "blimp.control.arguments",
    ),
    "broadcast": (
        "blimp.queue.brokers.streams.envelope", "blimp.queue.protocol", "blimp.queue.control",
        "blimp.queue.brokers.streams.exchanges", "blimp.queue.redis.clock", "blimp.tasks.estop",
    ),
    "mailbox": (
        "blimp.link.mailbox", "blimp.control.commander", "blimp.control.arguments",
        "blimp.control.admission", "blimp.control.authority", "blimp.control.pilot_link",
        "blimp.control.memory",
    ),
    "serial": (
        "blimp.hardware.nmea", "blimp.hardware.ubx", "blimp.hardware.gps",
        "blimp.hardware.gps_ubx", "blimp.hardware.dwm1001", "blimp.hardware.bno055",
        "blimp.hardware.lines", "blimp.hardware.device",
    ),
    "configuration": (
        "blimp.config", "blimp.airframe", "blimp.hardware.board",
        "blimp.service.computer.configuration",
        "ground_station.mission_file", "blimp.queue.redis.urls", "tomllib",
    ),
    "mission": (
        "ground_station.mission_file", "ground_station.mavlink.plan_file",
        "ground_station.mavlink.items", "ground_station.legs", "ground_station.mission_check",
        "blimp.geofence",
    ),
    "mavlink": ("ground_station.mavlink", "ground_station.legs"),
}  # fmt: skip
