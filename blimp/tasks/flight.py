"""Flight: arm, fly somewhere, come down.

`arm` is the only task that is not idempotent: a message that was left over must never arm a
ship that restarted on its own. It must also say when it was issued, because only an arm that
is later than the last emergency stop undoes that stop.
"""

from blimp.tasks.command import CommandTask

TASKS = (
    CommandTask(
        command="arm",
        about="Let the propellers turn; `force` skips the checks, on the bench only.",
        idempotent=False,
        needs_issue_time=True,
    ),
    CommandTask(command="disarm", about="Stop the propellers; refused in the air."),
    CommandTask(command="mode", about="Enter the flight mode `name`."),
    CommandTask(command="takeoff", about="Climb to `altitude_m` and stay there."),
    CommandTask(
        command="goto",
        about="Fly to `north_m`, `east_m`, `altitude_m` from the pad, with heading `yaw_deg`.",
    ),
    CommandTask(
        command="velocity",
        about="Fly at `north_mps`, `east_mps`, `up_mps` for `seconds`, then stay there.",
    ),
    CommandTask(
        command="trajectory",
        about="Fly `points` of trajectory `name`; more of them may follow until the `last`.",
    ),
    CommandTask(
        command="stick",
        about="Push by `forward_percent`, `right_percent`, `up_percent`, `turn_percent`.",
    ),
    CommandTask(
        command="hold", about="Keep attitude and height; needs no position.", comes_to_rest=True
    ),
    CommandTask(command="land", about="Come down here and disarm.", comes_to_rest=True),
    CommandTask(command="return", about="Fly back to the pad, or to a rally point that is nearer."),
    CommandTask(
        command="geofence",
        about="Limit the next flight to `zones`, `ceiling_m` and `floor_m`; `rally` points.",
    ),
    CommandTask(
        command="payload",
        about="Turn the servo `name` or `channel`, which steers nothing, to `deg` or `pulse_us`.",
    ),
)
