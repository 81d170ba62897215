"""What every command task shares: its way through the mailbox.

A task decides nothing about flight. It sends the command to the flight process, with its age
and its delivery count, and returns the outcome. The flight process remembers outcomes by
command id, so a task that is delivered twice moves nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

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
from blimp.queue.protocol.message import PARENT, trace_headers
from blimp.queue.protocol.signing import FRESH_S
from blimp.queue.redis.clock import Moment
from blimp.tasks.authority import HEADER, STOP_ID
from blimp.tasks.client import BOOT
from blimp.types import Command, Heartbeat, Outcome, OutcomeState, Snapshot

if TYPE_CHECKING:
    from blimp.actions import Action
    from blimp.queue.context import TaskContext
    from blimp.tasks.authority import Authority

ASK_S = 0.25  # how long one call waits before the same command is sent again
SILENCE_S = 5.0  # how long the flight process may be silent if no time to live limits it
FOLLOW_S = 0.5
HEARD_S = 0.5  # a flight process that has been silent for longer may have ended
PROGRESS_STEP = 0.01
SIGN_OF_LIFE_S = 1.0
MAX_SOURCE_LETTERS = 80


class Mailbox(Protocol):
    """What the tasks use of `blimp.link.mailbox.MailboxClient`."""

    def call(self, command: Command, *, timeout_s: float) -> Outcome | None: ...
    def wait(self, id: str, *, timeout_s: float) -> Outcome | None: ...
    def snapshot(self) -> Snapshot | None: ...
    def snapshot_age_s(self) -> float | None: ...
    def greet(self, *, link: bool, deaf: str | None = None) -> bool: ...

    def relay(self, heartbeat: Heartbeat) -> bool: ...


def command_task(
    action: Action, *, vehicle: str, mailbox: Mailbox, authority: Authority
) -> Callable[..., dict[str, Any]]:
    """Return the function of the task of `action`."""

    def run(context: TaskContext, **arguments: Any) -> dict[str, Any]:
        meant_for = context.message.headers.get("blimp_vehicle", vehicle)
        if meant_for != vehicle:
            raise Refused(f"meant for vehicle {meant_for!r:.80}, this is {vehicle!r}")
        command = CommandRun(
            action=action,
            context=context,
            mailbox=mailbox,
            arguments=arguments,
            authority=authority,
        )
        tracer = context.task.app.tracer
        if tracer is None:
            return command.follow()
        from blimp.tasks.tracing import follow_traced  # loads OpenTelemetry, an extra

        return follow_traced(
            command.follow,
            tracer=tracer,
            command=action.name,
            clock=context.task.app.clock,
            accepted_s=lambda: command.accepted_s,
            attributes={"blimp.vehicle": vehicle},
        )

    run.__name__ = action.name
    run.__doc__ = action.about
    return run


class CommandRun:
    """One run of a command task: sends the command through the mailbox and follows it."""

    def __init__(
        self,
        *,
        action: Action,
        context: TaskContext,
        mailbox: Mailbox,
        arguments: dict[str, Any],
        authority: Authority,
    ) -> None:
        self._action = action
        self._context = context
        self._mailbox = mailbox
        self._arguments = arguments
        self._authority = authority
        self._admitted: int | None = None  # final once the ship has answered
        self._clock = context.task.app.clock
        # A stop comes by several roads under one id: the ship acts on the first.
        stop_id = context.message.headers.get(STOP_ID) if action.name == "estop" else None
        self._id = stop_id if isinstance(stop_id, str) and stop_id else context.id
        self._boot_id = self._known_boot_id()
        self._accepted_s: float | None = None
        self._reported, self._waits = -1.0, ""
        self._reported_s = self._clock.now_s()

    @property
    def accepted_s(self) -> float | None:
        """When the ship accepted the command, on its monotonic clock; None before."""
        return self._accepted_s

    def follow(self) -> dict[str, Any]:
        """Return the result of the command once it is done.

        Raises Refused with the ship's reason; NotInControl if another pilot has the ship;
        ControlUnknown if the broker did not say in time whether one has; Interrupted if the
        flight process was restarted during the command; TaskError if it does not answer;
        Reject if the worker stops, and the next worker follows the command on; Revoked if the
        task was revoked. In the last two cases the ship goes on with the command.
        """
        self._check_fresh()
        if self._boot_id and not self._stored_boot_id():
            # Before the ship can act: if this worker dies, the next one must not take the boot
            # that it hears then for the one that has acted.
            self._context.progress(0.0, boot_id=self._boot_id, sent=False)
        outcome = self._ask(self._patience_s(), doing="does not answer")
        while outcome.state is OutcomeState.IN_PROGRESS:
            self._report_progress(outcome)
            self._check_cancelled()
            news = self._mailbox.wait(self._id, timeout_s=FOLLOW_S)
            # Silence: send it again with the same id, which moves nothing.
            outcome = news or self._ask(SILENCE_S, doing="fell silent during the command")
            self._check_boot(outcome)
        if outcome.state is OutcomeState.REFUSED:
            if "authority" in outcome.result:
                self._authority.note_newest(outcome.result["authority"])
                raise NotInControl(outcome.reason)
            raise Refused(outcome.reason)
        return command_result(outcome, accepted_s=self._accepted_s)

    def _check_fresh(self) -> None:
        """Raise Refused for what may have been recorded, if it must be signed.

        What has a time to live was judged before. `age_s` lets a stop pass a step of the clock.
        """
        app, message = self._context.task.app, self._context.message
        if app.signer is None or message.ttl_s is not None or self._context.began_before:
            return
        if message.issued_ms is None:
            raise Refused(f"{self._action.name} is signed, and does not say when it was issued")
        age_s = app.broker_clock.age_s(message.issued_ms / 1000.0, limit_s=FRESH_S)
        if not abs(age_s) <= FRESH_S:
            raise Refused(f"{self._action.name} is {age_s:.0f} s old: the limit is {FRESH_S:g}")

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
            self._check_cancelled()
            # A call to a flight process that is down fails at once: do not spin meanwhile.
            self._clock.sleep_until(asked_s + ASK_S)

    def _check_cancelled(self) -> None:
        if self._context.revoked.is_set():
            raise Revoked(
                "no longer waiting for it: the ship still carries out what it has accepted"
            )
        if self._context.stopping.is_set() and self._action.idempotent:
            raise Reject("the worker stops", requeue=True)

    def _command(self) -> Command:
        ttl_s, age_s, sent_s = self._time_to_live()
        # Ask after `sent_s` is taken: a restarted flight process accepts no authority from
        # before its start, and judges that by `sent_s`.
        authority = self._ask_authority()
        return Command(
            id=self._id,
            name=self._action.name,
            arguments=self._arguments,
            fence=self._context.fence,
            age_s=age_s,
            ttl_s=ttl_s,
            boot_id=self._boot_id,
            source=printable_source(self._context.message.headers.get("blimp_source", "")),
            sent_s=sent_s,
            authority=authority,
            trace=trace_headers(self._context.message.headers).get(PARENT, ""),
        )

    def _ask_authority(self) -> int:
        """Return the command's authority number; asks again until the ship has accepted it."""
        if not self._action.needs_control:
            return 0
        if self._admitted is not None and self._accepted_s is not None:
            return self._admitted
        try:
            self._admitted = self._authority.admit(self._context.message.headers.get(HEADER))
        except LinkError as error:
            raise ControlUnknown(f"its holder of control is unknown: {error}") from error
        return self._admitted

    def _time_to_live(self) -> tuple[float | None, float, float]:
        """Return the time to live, the age on the broker's clock, and the local time of both.

        A message that only says when it expires lives until then, and has no age.
        """
        message = self._context.message
        if message.issued_ms is None and message.expires_s is None:
            now = Moment(self._clock.now_s(), 0.0)
        else:
            now = self._context.task.app.broker_clock.latest()
        age_s = 0.0
        if message.issued_ms is not None:
            issued_s = message.issued_ms / 1000.0
            age_s = now.theirs_s - issued_s
            if not self._action.comes_to_rest:
                age_s += self._context.task.app.broker_clock.doubt_s(issued_s)
        if message.ttl_s is not None:
            return message.ttl_s, age_s, now.ours_s
        if message.expires_s is not None:
            if message.issued_ms is None and self._action.needs_issue_time:
                raise Refused(
                    f"{self._action.name} does not say when it was issued, so it may be older "
                    "than an emergency stop: set the header blimp_issued_ms"
                )
            if message.issued_ms is not None:
                return message.expires_s - message.issued_ms / 1000.0, age_s, now.ours_s
            return message.expires_s - now.theirs_s, age_s, now.ours_s
        if self._action.needs_ttl:
            raise Refused(
                f"{self._action.name} carries no time to live: set expires, or the headers "
                "blimp_ttl_s and blimp_issued_ms"
            )
        return None, age_s, now.ours_s

    def _patience_s(self) -> float:
        """Return how long to wait for a first answer: until the command would be stale."""
        ttl_s, age_s, _ = self._time_to_live()
        if ttl_s is None or self._context.began_before:
            return SILENCE_S
        return max(ASK_S, ttl_s - age_s)

    def _report_progress(self, outcome: Outcome) -> None:
        """Publish progress: the first one, each further per cent, why it waits, a sign of life."""
        fraction, why, now_s = outcome.fraction, outcome.reason, self._clock.now_s()
        is_news = fraction - self._reported >= PROGRESS_STEP or why != self._waits
        if is_news or now_s - self._reported_s >= SIGN_OF_LIFE_S:
            self._reported, self._waits, self._reported_s = fraction, why, now_s
            details = {"reason": why} if why else {}
            self._context.progress(fraction, boot_id=self._boot_id, **details)

    def _known_boot_id(self) -> str:
        """Return the boot id of the flight process this command is for, "" if none is known.

        That of an earlier delivery, else the one the sender names, else the one that is heard
        now: a restarted flight process must not accept the repeated command as a new one.
        """
        if stored := self._stored_boot_id():
            return stored
        meant_for = str(self._context.message.headers.get(BOOT, ""))
        if meant_for and self._action.needs_control and not self._action.comes_to_rest:
            return meant_for
        snapshot, age_s = self._mailbox.snapshot(), self._mailbox.snapshot_age_s()
        is_heard = snapshot is not None and age_s is not None and age_s < HEARD_S
        return snapshot.boot_id if snapshot is not None and is_heard else ""

    def _stored_boot_id(self) -> str:
        """Return the boot id that an earlier delivery stored before it sent the command."""
        previous = self._context.previous
        if previous is None or not isinstance(previous.result, dict):
            return ""
        return str(previous.result.get("boot_id", ""))

    def _check_boot(self, outcome: Outcome) -> None:
        """Raise Interrupted if another flight process answers than accepted the command."""
        if outcome.boot_id and self._boot_id and outcome.boot_id != self._boot_id:
            raise Interrupted(
                f"the flight process was restarted during {self._action.name}, and the new one "
                f"does not know the command (its boot id is {outcome.boot_id}, that of the "
                f"process before it was {self._boot_id})"
            )
        self._boot_id = self._boot_id or outcome.boot_id
        if self._accepted_s is None:
            self._accepted_s = outcome.accepted_s


def printable_source(sender: object) -> str:
    """Return the sender's name, short and printable: it is for people only."""
    return str(sender)[:MAX_SOURCE_LETTERS].encode(errors="backslashreplace").decode()


def command_result(outcome: Outcome, *, accepted_s: float | None) -> dict[str, Any]:
    """Return a command's result, with when it was accepted on the ship's monotonic clock."""
    return {**outcome.result, "fraction": outcome.fraction, "accepted_s": accepted_s}
