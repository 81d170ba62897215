"""The vehicle's tasks: each turns its message into a command and hands it over.

A task decides nothing about flight. It tells the flight process what was asked, how old it
is and how often it was delivered, and reports back what became of it. The flight process
remembers outcomes by id, so a task that comes twice moves nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from blimp.errors import (
    ControlUnknown,
    Interrupted,
    LinkError,
    NotInControl,
    Refused,
    Reject,
    Revoked,
    TaskError,
)
from blimp.queue.app import TaskApp
from blimp.queue.control.broadcast import Broadcast
from blimp.queue.control.pidbox import INSPECT
from blimp.queue.protocol.message import EMERGENCY, NORMAL
from blimp.queue.protocol.trace_context import PARENT, trace_headers
from blimp.queue.redis.clock import Moment
from blimp.queue.task import TaskContext
from blimp.tasks.authority import HEADER, Authority
from blimp.tasks.client import vehicle_queue
from blimp.types import Command, Outcome, OutcomeState, Snapshot

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.protocol.signing import Key

ASK_S = 0.25  # how long one call waits before the same command is sent again
SILENCE_S = 5.0  # how long the flight process may be silent where no time to live says
FOLLOW_S = 0.5
HEARD_S = 0.5  # a flight process silent for longer may have ended
PROGRESS_STEP = 0.01
SIGN_OF_LIFE_S = 1.0
MAX_SOURCE_LETTERS = 80


class Mailbox(Protocol):
    """What is needed of `blimp.link.mailbox.MailboxClient`."""

    def call(self, command: Command, *, timeout_s: float) -> Outcome | None: ...
    def wait(self, id: str, *, timeout_s: float) -> Outcome | None: ...
    def snapshot(self) -> Snapshot | None: ...
    def snapshot_age_s(self) -> float | None: ...
    def greet(self, *, link: bool) -> bool: ...


class FlightTask(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table of commands.

    idempotent: arm alone is not. A ship that restarted on its own must never be armed again
        by a message that was left over.
    ages: must it carry a time to live? What only asks, or only stops, needs none.
    dated: must it say when it was issued? Only an arm later than an emergency stop undoes it.
    pilots: is it for whoever holds control of the ship, where somebody does? What only asks,
        or only stops, is anybody's.
    """

    command: str
    idempotent: bool = True
    ages: bool = True
    dated: bool = False
    pilots: bool = True
    priority: int = NORMAL


# A new command is one line here, and its meaning in the flight process.
FLIGHT_TASKS = (
    FlightTask(command="ping", ages=False, pilots=False),
    FlightTask(command="arm", idempotent=False, dated=True),
    FlightTask(command="disarm"),
    FlightTask(command="mode"),
    FlightTask(command="takeoff"),
    FlightTask(command="goto"),
    FlightTask(command="velocity"),
    FlightTask(command="hold"),
    FlightTask(command="land"),
    FlightTask(command="return"),
    FlightTask(command="motor"),
    FlightTask(command="servo"),
    FlightTask(command="sensor", ages=False, pilots=False),
    FlightTask(command="estop", ages=False, pilots=False, priority=EMERGENCY),
)


def build_flight_app(
    *,
    vehicle: str,
    broker: str,
    mailbox: Mailbox,
    clock: Clock | None = None,
    signing_key: Key | Sequence[Key] | None = None,
    remote_control: str = INSPECT,
) -> TaskApp:
    """Return the app with the tasks of `vehicle`, named `blimp.<command>`.

    Its queue is `blimp.<vehicle>`; results go to the broker's server. Run it with a Worker
    of at least 8 threads: a command that is superseded takes a moment to end.
    remote_control: see TaskApp. Nobody stops the worker of a ship by reaching its broker, where
    that is not asked for.
    """
    name = vehicle_queue(vehicle)
    app = TaskApp(
        name,
        broker=broker,
        result_backend=broker,
        queue=name,
        clock=clock,
        signing_key=signing_key,
        remote_control=remote_control,
    )
    authority = Authority(link=app.broker_link, vehicle=vehicle)
    for row in FLIGHT_TASKS:
        app.task(
            name=f"blimp.{row.command}",
            idempotent=row.idempotent,
            resumable=True,
            track_started=True,
            bind=True,
            interruptible=False,  # the mailbox's locks are the emergency stop's, too
            priority=row.priority,
        )(_flight_task(row, vehicle=vehicle, mailbox=mailbox, authority=authority))

    @app.task(name="blimp.status", interruptible=False)
    def status() -> dict[str, Any]:
        """Return the newest snapshot, with its age."""
        snapshot = mailbox.snapshot()
        if snapshot is None:
            raise TaskError("no snapshot yet: the flight process has not been heard")
        return {**msgspec.to_builtins(snapshot), "age_s": mailbox.snapshot_age_s()}

    @app.on_broadcast("estop")
    def estop(broadcast: Broadcast) -> dict[str, Any] | None:
        command = Command(
            id=broadcast.id, name="estop", source=_source(broadcast.payload.get("source", ""))
        )
        outcome = mailbox.call(command, timeout_s=ASK_S)
        if outcome is None:
            return None  # not confirmed: asked again when the ground repeats itself
        return _result(outcome, accepted_s=outcome.accepted_s)

    @app.on_link
    def greet(alive: bool) -> None:
        mailbox.greet(link=alive)

    return app


def _flight_task(
    row: FlightTask, *, vehicle: str, mailbox: Mailbox, authority: Authority
) -> Callable[..., dict[str, Any]]:
    def run(context: TaskContext, **arguments: Any) -> dict[str, Any]:
        meant_for = context.message.headers.get("blimp_vehicle", vehicle)
        if meant_for != vehicle:
            raise Refused(f"meant for vehicle {meant_for!r:.80}, this is {vehicle!r}")
        hand_over = HandOver(
            row=row, context=context, mailbox=mailbox, arguments=arguments, authority=authority
        )
        tracer = context.task.app.tracer
        if tracer is None:
            return hand_over.follow()
        from blimp.tasks.flight_trace import follow_traced

        return follow_traced(
            hand_over.follow,
            tracer=tracer,
            command=row.command,
            clock=context.task.app.clock,
            accepted_s=lambda: hand_over.accepted_s,
            attributes={"blimp.vehicle": vehicle},
        )

    run.__name__ = row.command
    run.__doc__ = f"Hand {row.command!r} to the flight process and follow it to its end."
    return run


class HandOver:
    """One command on its way through the mailbox."""

    def __init__(
        self,
        *,
        row: FlightTask,
        context: TaskContext,
        mailbox: Mailbox,
        arguments: dict[str, Any],
        authority: Authority,
    ) -> None:
        self._row = row
        self._context = context
        self._mailbox = mailbox
        self._arguments = arguments
        self._authority = authority
        self._admitted: int | None = None  # settled once the ship has answered
        self._clock = context.task.app.clock
        self._boot_id = self._known_boot_id()
        self._accepted_s: float | None = None
        self._shown = -1.0
        self._shown_s = self._clock.now_s()

    @property
    def accepted_s(self) -> float | None:
        """When the ship took the command, on its monotonic clock; None before."""
        return self._accepted_s

    def follow(self) -> dict[str, Any]:
        """Return the result of the command once it is done.

        Raises Refused with the ship's reason, NotInControl where another pilot has the ship,
        ControlUnknown where the broker did not say in time whether one has,
        Interrupted where the flight process was restarted under it, TaskError where it does
        not answer, and Reject where the worker stops: the ship flies on, and the next worker
        takes the command up again. Revoked where the task was revoked: it flies on then, too.
        """
        outcome = self._ask(self._patience_s(), doing="does not answer")
        while outcome.state is OutcomeState.IN_PROGRESS:
            self._show(outcome.fraction)
            self._leave_if_asked()
            heard = self._mailbox.wait(self._context.id, timeout_s=FOLLOW_S)
            # Silence: ask again with the same id, which moves nothing.
            outcome = heard or self._ask(SILENCE_S, doing="fell silent during the command")
            self._check_boot(outcome)
        if outcome.state is OutcomeState.REFUSED:
            if "authority" in outcome.result:
                self._authority.seen(outcome.result["authority"])
                raise NotInControl(outcome.reason)
            raise Refused(outcome.reason)
        return _result(outcome, accepted_s=self._accepted_s)

    def _ask(self, patience_s: float, *, doing: str) -> Outcome:
        deadline_s = self._clock.now_s() + patience_s
        while True:
            asked_s = self._clock.now_s()
            unknown = None
            try:
                outcome = self._mailbox.call(self._command(), timeout_s=ASK_S)
            except ControlUnknown as error:
                outcome, unknown = None, error
            if outcome is not None:
                self._check_boot(outcome)
                return outcome
            now_s = self._clock.now_s()
            if now_s >= deadline_s and unknown is not None:
                raise unknown
            if now_s >= deadline_s:
                raise TaskError(f"the flight process {doing}: asked for {patience_s:.1f} s")
            self._leave_if_asked()
            # A flight process that is away fails a call at once; do not spin until it is back.
            self._clock.sleep_until(asked_s + ASK_S)

    def _leave_if_asked(self) -> None:
        if self._context.revoked.is_set():
            raise Revoked("no more is followed: what the ship has taken it goes on with")
        if self._context.stopping.is_set() and self._row.idempotent:
            raise Reject("the worker stops", requeue=True)

    def _command(self) -> Command:
        ttl_s, age_s, sent_s = self._time_to_live()
        # Last of all, and after `sent_s`: what was let through earlier than that is no use.
        authority = self._ask_authority()
        return Command(
            id=self._context.id,
            name=self._row.command,
            arguments=self._arguments,
            fence=self._context.fence,
            age_s=age_s,
            ttl_s=ttl_s,
            boot_id=self._boot_id,
            source=_source(self._context.message.headers.get("blimp_source", "")),
            sent_s=sent_s,
            authority=authority,
            trace=trace_headers(self._context.message.headers).get(PARENT, ""),
        )

    def _ask_authority(self) -> int:
        """Return what the mailbox is told: asked anew until the ship has taken the command."""
        if not self._row.pilots:
            return 0
        if self._admitted is not None and self._accepted_s is not None:
            return self._admitted
        try:
            self._admitted = self._authority.admit(self._context.message.headers.get(HEADER))
        except LinkError as error:
            raise ControlUnknown(f"cannot tell who holds control of it: {error}") from error
        return self._admitted

    def _time_to_live(self) -> tuple[float | None, float, float]:
        """Return the command's time to live, its age on the broker's clock, and when it held.

        A message that only says when it expires has what is left until then, and no age.
        """
        message = self._context.message
        if message.issued_ms is None and message.expires_s is None:
            now = Moment(self._clock.now_s(), 0.0)
        else:
            now = self._context.task.app.broker_clock.latest()
        age_s = 0.0 if message.issued_ms is None else now.theirs_s - message.issued_ms / 1000.0
        if message.ttl_s is not None:
            return message.ttl_s, age_s, now.ours_s
        if message.expires_s is not None:
            if message.issued_ms is None and self._row.dated:
                raise Refused(
                    f"{self._row.command} does not say when it was issued, so it may be older "
                    "than an emergency stop: set the header blimp_issued_ms"
                )
            if message.issued_ms is not None:
                return message.expires_s - message.issued_ms / 1000.0, age_s, now.ours_s
            return message.expires_s - now.theirs_s, age_s, now.ours_s
        if self._row.ages:
            raise Refused(
                f"{self._row.command} carries no time to live: set expires, or the headers "
                "blimp_ttl_s and blimp_issued_ms"
            )
        return None, age_s, now.ours_s

    def _patience_s(self) -> float:
        """How long to ask for a first answer: until the command would be stale."""
        ttl_s, age_s, _ = self._time_to_live()
        if ttl_s is None or self._context.began_before:
            return SILENCE_S
        return max(ASK_S, ttl_s - age_s)

    def _show(self, fraction: float) -> None:
        """Publish progress: the first word, each further per cent, and a sign of life."""
        now_s = self._clock.now_s()
        if fraction - self._shown >= PROGRESS_STEP or now_s - self._shown_s >= SIGN_OF_LIFE_S:
            self._shown, self._shown_s = fraction, now_s
            self._context.progress(fraction, boot_id=self._boot_id)

    def _known_boot_id(self) -> str:
        """Return which flight process this command is for, "" where none is known to fly.

        That of an earlier delivery, else the sender's, else the one that is heard just now:
        asked again, its successor must not take the command for new.
        """
        previous = self._context.previous
        if previous is not None and isinstance(previous.result, dict):
            return str(previous.result.get("boot_id", ""))
        meant_for = str(self._context.message.headers.get("blimp_boot_id", ""))
        if meant_for:
            return meant_for
        snapshot, age_s = self._mailbox.snapshot(), self._mailbox.snapshot_age_s()
        heard = snapshot is not None and age_s is not None and age_s < HEARD_S
        return snapshot.boot_id if snapshot is not None and heard else ""

    def _check_boot(self, outcome: Outcome) -> None:
        """Hold on to the flight process that took the command; it must stay the same."""
        if outcome.boot_id and self._boot_id and outcome.boot_id != self._boot_id:
            raise Interrupted(
                f"the flight process was restarted during {self._row.command}: "
                f"boot {self._boot_id} became {outcome.boot_id}"
            )
        self._boot_id = self._boot_id or outcome.boot_id
        if self._accepted_s is None:
            self._accepted_s = outcome.accepted_s


def _source(told: object) -> str:
    """Return who sent it, short and as text that any reader can print: it only names him."""
    return str(told)[:MAX_SOURCE_LETTERS].encode(errors="backslashreplace").decode()


def _result(outcome: Outcome, *, accepted_s: float | None) -> dict[str, Any]:
    """Return a command's result, with when it was accepted on the ship's monotonic clock."""
    return {**outcome.result, "fraction": outcome.fraction, "accepted_s": accepted_s}
