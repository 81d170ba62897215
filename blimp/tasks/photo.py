"""Photographs: the camera's process takes them, the worker stamps, lists and sends them.

`photo` asks the camera, under the command's id: whatever is delivered twice is taken once. More of
them at intervals are messages of the queue, each of which sends the next; one that is newer, or
`photo_stop`, supersedes the one that waits. The result of each has the id of the `next`. None of
this asks the flight process for anything.

The ground asks for one thing at a time, behind every command: a list, a piece of a picture. The
answer is published to it alone, and stored nowhere: what is lost, the ground asks for again. When
the ground has a photograph whole it says its hash (`photo_confirm`), and the ship deletes it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from blimp.actions import ACTIONS, PHOTO_S
from blimp.errors import LinkError, PhotoError, Refused, Reject, Revoked, TaskError
from blimp.photo import MAX_ABOUT, Photo, PhotoRequest
from blimp.queue.protocol.message import LOW, NORMAL, TaskMessage
from blimp.queue.publish.coalescing import Coalescing
from blimp.queue.redis.clock import Moment
from blimp.tasks.client import photo_channel, photo_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from blimp.queue.app import TaskApp
    from blimp.queue.context import TaskContext
    from blimp.tasks.command import Mailbox

ASK_S = 5.0  # for one answer of the camera, then it is asked again; a still takes it 1 s
AGAIN_S = 0.25
MOST_LISTED = 100  # 50 kB: over a slow link fewer are asked for
SERIES = "blimp photographs"  # of the photographs at intervals: one series at a time
NEXT = "blimp.photo_next"
HEARD_S = 1.0  # an older snapshot says nothing of where the ship is
_SHOWN = ("name", "taken_s", "width", "height", "bytes")  # of a record, to who asked for it
_NONCE = re.compile(r"[0-9a-f]{16}")


class Photos(Protocol):
    """The ship's camera and its photographs, as the worker reaches them."""

    def take(self, request: PhotoRequest, *, timeout_s: float) -> Photo | None:
        """Return the photograph of a command; None if the camera did not answer in time.

        Raises Refused with the camera's reason, or if there is no camera.
        """
        ...

    def photos(self, most: int, *, before: str = "") -> list[Photo]: ...

    def read(self, name: object, offset: int, size: int, *, preview: bool) -> bytes: ...

    def confirm(self, name: object, sha256: object) -> None: ...

    def place(
        self, position_ned_m: tuple[float, float, float]
    ) -> tuple[float, float, float] | None: ...


def register_photos(app: TaskApp, *, vehicle: str, mailbox: Mailbox, photos: Photos) -> None:
    """Add the tasks of photographs to `app`."""
    coalescing = Coalescing(link=app.broker_link)

    def photo(
        context: TaskContext, every_s: float | None = None, count: int | None = None
    ) -> dict[str, Any]:
        try:
            given = {"every_s": every_s, "count": count}
            ACTIONS["photo"].checked(given)
        except ValueError as error:
            raise Refused(f"photo: {error}") from None
        meant_for = context.message.headers.get("blimp_vehicle", vehicle)
        if meant_for != vehicle:
            raise Refused(f"meant for vehicle {meant_for!r:.80}, this is {vehicle!r}")
        found = taken(context)
        if every_s is not None and count != 1:
            now_s = app.broker_clock.latest_s()
            found["next"] = follow(
                context.id, number=2, began_s=now_s, every_s=every_s, count=count
            )
        return {**found, "fraction": 1.0, "accepted_s": None}

    def taken(context: TaskContext) -> dict[str, Any]:
        one = _taken(context, _request(context, vehicle, mailbox, photos), photos)
        return {name: getattr(one, name) for name in _SHOWN}

    def photo_next(
        context: TaskContext,
        series: str,
        number: int,
        began_s: float,
        every_s: float,
        count: int | None,
    ) -> dict[str, Any]:
        """Take one of several, and send the task that takes the next."""
        try:
            found = taken(context)
        except (Refused, TaskError) as error:  # the next one may be there again
            if context.stopping.is_set():
                raise
            found = {"reason": str(error)}
        if coalescing.newer(context.message) is None:
            found["next"] = follow(
                series, number=number + 1, began_s=began_s, every_s=every_s, count=count
            )
        return found

    def follow(
        series: str, *, number: int, began_s: float, every_s: float, count: int | None
    ) -> str:
        """Send the task of the next photograph of a series: at its time, or the next that can be.

        Returns its id, "" if it was the last one: an id that any delivery finds again, so it is
        taken once.
        """
        wait_s = began_s + (number - 1) * every_s - app.broker_clock.latest_s()
        missed = 0 if wait_s >= 0.0 else int(-wait_s // every_s) + 1
        wait_s, number = wait_s + missed * every_s, number + missed
        id = f"{series}.{number}" if count is None or number <= count else ""
        if id:
            arguments = {
                "series": series, "number": number, "began_s": began_s, "every_s": every_s,
                "count": count,
            }  # fmt: skip
            app.send_task(
                NEXT, (), arguments, task_id=id, countdown=wait_s, coalesce=SERIES,
                priority=NORMAL,
            )  # fmt: skip
        return id

    def photo_stop(context: TaskContext) -> dict[str, Any]:
        number = coalescing.number(app.queue, SERIES)
        message = TaskMessage(
            id=context.id, task=NEXT, queue=app.queue, coalesce=SERIES, coalesce_number=number
        )
        coalescing.remember(message)
        return {"fraction": 1.0, "accepted_s": None}

    for function in (photo, photo_stop):
        action = ACTIONS[function.__name__]
        function.__doc__ = action.about
        app.task(name=f"blimp.{action.name}", bind=True, track_started=True, interruptible=False)(
            function
        )

    def question(function: Callable[..., None]) -> None:
        """Make a task that runs after all others, and whose answer is no result."""
        name = f"blimp.{function.__name__}"
        app.task(name=name, priority=LOW, interruptible=False, ignore_result=True)(function)

    app.task(name=NEXT, bind=True, interruptible=False)(photo_next)

    def answer(to: object, number: object, make: Callable[[str], bytes]) -> None:
        """Publish to who asks what `make` returns for this place of a signature, or why not."""
        if not isinstance(to, str) or not _NONCE.fullmatch(to) or not isinstance(number, int):
            raise Refused(f"to {to!r:.40}, number {number!r:.40}: no address of an answer")
        try:
            data = b"%d " % number + make(photo_place(vehicle, to, number))
        except (PhotoError, TypeError) as error:
            data = b"-%d " % number + str(error)[:MAX_ABOUT].encode(errors="replace")
        app.broker_link.ask(lambda client: client.publish(photo_channel(vehicle, to), data))

    @question
    def photo_list(to: str, number: int, before: str = "", most: int = 1) -> None:
        """Send the records of photographs that the ground does not have, the newest first.

        before: only those older than the one of this name.
        """

        def listed(place: str) -> bytes:
            if not isinstance(before, str) or type(most) is not int or not 0 < most <= MOST_LISTED:
                raise PhotoError(f"most must be 1 to {MOST_LISTED}, before a name")
            data = msgspec.json.encode({"photos": photos.photos(most, before=before)})
            return data if app.signer is None else app.signer.append_to(data, place=place)

        answer(to, number, listed)

    @question
    def photo_piece(
        to: str, number: int, name: str, offset: int, size: int, preview: bool = False
    ) -> None:
        """Send a piece of a picture; the hash in its record says whether it is right."""
        answer(to, number, lambda _: photos.read(name, offset, size, preview=preview))

    @question
    def photo_confirm(to: str, number: int, name: str, sha256: str) -> None:
        """Delete a photograph that the ground has."""

        def confirmed(_: str) -> bytes:
            photos.confirm(name, sha256)
            return b""

        answer(to, number, confirmed)


def _request(context: TaskContext, vehicle: str, mailbox: Mailbox, photos: Photos) -> PhotoRequest:
    """Return what the camera is asked for, with what the ship last said of itself."""
    app = context.task.app
    try:
        now = app.broker_clock.latest()
    except LinkError:  # it went after the command had come: the photograph is taken all the same
        now = Moment(app.clock.now_s(), app.clock.wall_s())
    source = str(context.message.headers.get("blimp_source", ""))[:MAX_ABOUT]
    snapshot, age_s = mailbox.snapshot(), mailbox.snapshot_age_s()
    about: dict[str, Any] = {}
    if snapshot is not None and age_s is not None and age_s < HEARD_S:
        if not snapshot.health.position.doubt:
            about["position_ned_m"] = snapshot.position_ned_m
            about["place"] = photos.place(snapshot.position_ned_m)
        if not snapshot.health.attitude.doubt:
            angle = snapshot.attitude_rad
            about["attitude_rad"] = (angle.roll, angle.pitch, angle.yaw)
    return PhotoRequest(
        id=context.id, ship=vehicle, unix_s=now.theirs_s, asked_s=now.ours_s, source=source, **about
    )


def _taken(context: TaskContext, request: PhotoRequest, photos: Photos) -> Photo:
    """Return the photograph of a task, which is asked for until the camera answers."""
    clock = context.task.app.clock
    until_s = clock.now_s() + PHOTO_S
    while True:
        asked_s = clock.now_s()
        taken = photos.take(request, timeout_s=ASK_S)
        if taken is not None:
            return taken
        if context.revoked.is_set():
            raise Revoked("no longer waiting for it: the camera may still take it")
        if context.stopping.is_set():
            raise Reject("the worker stops", requeue=True)
        if clock.now_s() >= until_s:
            raise TaskError(f"the camera does not answer: asked for {PHOTO_S:g} s")
        # One that was killed refuses at once: do not spin until it is there again.
        clock.sleep_until(asked_s + AGAIN_S)
