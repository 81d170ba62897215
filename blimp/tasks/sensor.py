"""Sensor: read one sensor's newest sample.

Argument: `name` (a device of the airframe). The result holds its value, unit, age, health and
last error. It only asks: any pilot may send it, and it needs no time to live.
"""

from blimp.tasks.command import CommandTask

TASKS = (
    CommandTask(
        command="sensor",
        about="Return one sensor's newest sample, with its unit, age and health.",
        needs_ttl=False,
        needs_control=False,
    ),
)
