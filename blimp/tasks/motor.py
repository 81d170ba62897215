"""Motor: turn one propeller for some seconds.

Arguments: `name` (a thruster of the airframe), `percent` (-100 to 100 of full throttle; a
negative value turns it backwards), `seconds` (0 to 30). The task ends when the time is over.

The ship refuses it unless it is armed and in MANUAL, or was started with `--bench`.
"""

from blimp.tasks.command import CommandTask

TASKS = (CommandTask(command="motor", about="Turn one motor for some seconds."),)
