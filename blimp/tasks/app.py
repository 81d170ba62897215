"""The queue's app of one ship: a task for each row of `blimp/actions.py`, and what only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blimp.actions import ACTIONS
from blimp.queue.app import TaskApp
from blimp.queue.options import INSPECT
from blimp.queue.protocol.message import EMERGENCY, NORMAL
from blimp.tasks import estop, parameter, status
from blimp.tasks.authority import Authority
from blimp.tasks.client import vehicle_queue
from blimp.tasks.command import Mailbox, command_task
from blimp.tasks.photo import register_photos
from blimp.tasks.pilot_link import HeartbeatRelay

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.protocol.signing import Key
    from blimp.tasks.parameter import FlownAirframe
    from blimp.tasks.photo import Photos


def build_ship_app(
    *,
    vehicle: str,
    broker: str,
    mailbox: Mailbox,
    flown: FlownAirframe | None = None,
    photos: Photos | None = None,
    clock: Clock | None = None,
    signing_key: Key | Sequence[Key] | None = None,
    remote_control: str = INSPECT,
) -> TaskApp:
    """Return the app with the tasks of `vehicle`, named `blimp.<command>`.

    Its queue is `blimp.<vehicle>`; results go to the broker's server. Run it with a Worker of
    at least 8 threads: a command that is superseded takes a moment to end.
    flown: the airframe that the flight process flies; without it nothing of that is a task.
    photos: the camera and its photographs; without it, nothing of them is a task.
    remote_control: see TaskApp. By default remote control only answers questions, so that
    access to the broker is not enough to stop a ship's worker.
    """
    name = vehicle_queue(vehicle)
    app = TaskApp(
        name,
        broker=broker,
        result_backend=broker,
        queue=name,
        unknown_task_wait_s=0.0,  # a ship has one worker: its pilot has the answer at once
        clock=clock,
        signing_key=signing_key,
        remote_control=remote_control,
    )
    authority = Authority(link=app.broker_link, vehicle=vehicle)
    for action in (action for action in ACTIONS.values() if action.flies):
        run = command_task(action, vehicle=vehicle, mailbox=mailbox, authority=authority)
        if action.name == parameter.PARAMETER:
            if flown is None:
                continue
            run = parameter.checked(run, flown=flown, mailbox=mailbox)
        app.task(
            name=f"blimp.{action.name}",
            idempotent=action.idempotent,
            resumable=True,
            acts_in_doubt=action.comes_to_rest,
            track_started=True,
            bind=True,
            interruptible=False,  # the emergency stop takes the mailbox's locks, too
            priority=EMERGENCY if action.is_emergency else NORMAL,
        )(run)
    status.register_status(app, mailbox)
    if flown is not None:
        parameter.register_airframe(app, flown)
    if photos is not None:
        register_photos(app, vehicle=vehicle, mailbox=mailbox, photos=photos)
    estop.register_broadcast(app, mailbox)

    pilots = HeartbeatRelay(
        link=app.broker_link,
        vehicle=vehicle,
        authority=authority,
        mailbox=mailbox,
        signer=app.signer,
    )

    @app.on_link
    def greet(alive: bool) -> None:
        mailbox.greet(link=alive, deaf=app.deaf())
        if alive:
            pilots.look()

    return app
