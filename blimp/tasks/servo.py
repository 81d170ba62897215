"""Servo: turn one servo to an angle.

Arguments: `name` (a servo of the airframe), `deg` (within the servo's range), `seconds` (0 to
30, optional). With `seconds` the task ends when the time is over. Without it the task ends at
once, and the angle is kept for 10 s.

The ship refuses it unless it is armed and in MANUAL, or was started with `--bench`.
"""

from blimp.tasks.command import CommandTask

TASKS = (CommandTask(command="servo", about="Turn one servo to an angle."),)
