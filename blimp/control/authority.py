"""Who may command, at the last place that can say no: an older authority moves nothing.

The worker asks, when a command is about to act, who holds control of the ship, and tells the
answer as one number that only grows: see `blimp/tasks/authority.py`. A worker that slept in
between, or a message that was held up, brings a smaller one than was seen since.
"""

from blimp.actions import ACTIONS
from blimp.control.admission import Refusal
from blimp.types import MAX_AUTHORITY, Command

# What only asks, and what only stops, is anybody's.
FREE_FOR_ALL = frozenset(name for name, row in ACTIONS.items() if not row.needs_control)
# What only brings a ship to rest passes an older number than was seen: one that was forged since
# must not keep it out.
COMES_TO_REST = frozenset(name for name, row in ACTIONS.items() if row.comes_to_rest)
# With these a pilot on the ground flies a mode that needs one.
FLIES_BY_HAND = frozenset({"mode", "stick", "velocity", "motor", "servo", "wires"})


class OlderAuthority(Refusal):
    """Control of the ship has changed since this command was admitted."""


class AuthorityFence:
    """Remembers the greatest authority seen; 0 before the first."""

    def __init__(self) -> None:
        self.newest = 0
        self.held = False  # by the pilot at the radio transmitter, whom no queue knows
        self.silent = False  # that transmitter is not heard
        self._barred: int | None = None

    def take(self) -> None:
        """Give control to the transmitter: only an authority greater than any before passes.

        Before the first command none is known: then it is that of the next one that has any, which
        is refused. One without an authority says nothing of the others': it bars none.
        """
        if not self.held:
            self.held, self._barred = True, self.newest or None

    def release(self) -> None:
        self.held = False

    def obeyed(self, command: Command) -> None:
        """Give the ground control with a command that it was carried out; a refused one takes none.

        A refused one had ended the hold of a ship whose transmitter was lost.
        """
        if self.takes(command):
            self.release()

    @staticmethod
    def takes(command: Command) -> bool:
        """Whether a command takes control from a transmitter that is lost, if it is carried out."""
        return command.name not in FREE_FOR_ALL and command.name not in COMES_TO_REST

    def admit(self, command: Command) -> None:
        """Raise OlderAuthority for a command whose authority is older than one seen before."""
        if command.name in FREE_FOR_ALL:
            return
        if command.name in COMES_TO_REST:
            if self.newest < command.authority <= MAX_AUTHORITY:
                self.newest = command.authority
            return
        if self.held:
            self._contest(command.authority)
        if command.authority > MAX_AUTHORITY:
            raise OlderAuthority(f"authority {command.authority}, the limit is {MAX_AUTHORITY}")
        if command.authority < self.newest:
            given = f"authority {command.authority}" if command.authority else "no authority"
            raise OlderAuthority(
                f"{given} is older than {self.newest}, the newest seen: control has changed "
                "since this command was sent"
            )
        self.newest = command.authority

    def _contest(self, authority: int) -> None:
        if self.silent:
            return
        if self._barred is None:
            self._barred = authority or None
        if self._barred is None or not self._barred < authority <= MAX_AUTHORITY:
            raise Refusal(
                "the transmitter has control: only a pilot who takes control on the ground from "
                "now on gets it back (release and take it, if it is yours)"
            )
