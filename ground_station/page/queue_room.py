"""The queue room of the ships: the queue's own, on the ships of the session's broker."""

from collections.abc import Callable

from blimp.queue.app import TaskApp
from blimp.queue.extras.page.queue_room import MAX_QUEUES, QueueRoom
from blimp.tasks.client import vehicle_queue
from ground_station.session import Session

# None of them sends a command, or keeps one from a ship. A dead letter that is requeued is the
# message that it was, and the worker refuses it if its time to live is over.
ACTIONS = ("requeue", "drop", "revoke")


def queue_room(session: Session, *, vehicles: Callable[[], list[str]]) -> QueueRoom:
    """Return the room of a session. vehicles: returns the ships whose queues are counted."""

    def counted() -> dict[str, str]:
        return {name: vehicle_queue(name) for name in vehicles()[:MAX_QUEUES]}

    def open_app(name: str) -> TaskApp:
        """Return an app of the ship's queue, which knows no task."""
        broker, queue = session.ship.broker, vehicle_queue(name or session.ship.vehicle)
        return TaskApp(
            queue,
            broker=broker,
            result_backend=broker,
            queue=queue,
            signing_key=session.signing_keys,
        )

    return QueueRoom(open_app, clock=session.clock, counted=counted, actions=ACTIONS)
